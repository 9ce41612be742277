// Draws the diagrams of a page. Only pages with one load the library, 3 MB.
const own = document.currentScript.src;
document.addEventListener("DOMContentLoaded", () => {
  if (!document.querySelector("pre.mermaid")) return;
  const library = document.createElement("script");
  library.src = new URL("mermaid.min.js", own);
  library.onload = () => {
    const theme = document.body.dataset.theme;
    const dark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
    mermaid.run();
  };
  document.head.append(library);
});
