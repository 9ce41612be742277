"use strict";
// The list: search, filter and sort. What is chosen stands in the address, so it survives a reload.
const list = document.querySelector("#tables tbody");
if (list) {
  const rows = [...list.rows], search = document.querySelector("#search"), state = document.querySelector("#state");
  const heads = [...document.querySelectorAll("#tables th")];
  const chosen = new URLSearchParams(location.hash.slice(1));
  const sort = () => {
    if (!chosen.has("by")) return;
    const column = Number(chosen.get("by")), turn = chosen.get("down") ? -1 : 1;
    const key = row => row.cells[column].dataset.sort;
    const number = heads[column].classList.contains("number");
    rows.sort((a, b) => turn * (number ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b))));
    list.append(...rows);
    heads.forEach((head, place) => place === column
      ? head.setAttribute("aria-sort", turn < 0 ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
  };
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      row.hidden = !(words.every(word => row.dataset.text.includes(word)) && (!state.value || row.dataset.state === state.value));
      count += !row.hidden;
    }
    document.querySelector("#shown").textContent = count === rows.length ? "" : `${count} of ${rows.length}`;
    for (const [name, value] of [["q", search.value], ["state", state.value]]) value ? chosen.set(name, value) : chosen.delete(name);
    history.replaceState(null, "", chosen.size ? `#${chosen}` : location.pathname + location.search);
  };
  search.value = chosen.get("q") || "";
  state.value = chosen.get("state") || "";
  search.addEventListener("input", show);
  state.addEventListener("change", show);
  heads.forEach((head, place) => head.firstElementChild.addEventListener("click", () => {
    const again = chosen.get("by") === String(place);
    const down = again ? !chosen.get("down") : head.classList.contains("number");
    chosen.set("by", place);
    down ? chosen.set("down", 1) : chosen.delete("down");
    sort();
    show();
  }));
  sort();
  show();
}
// Plots of one table: seconds over time, with the promise as a line.
for (const data of document.querySelectorAll("[data-plot]")) {
  const place = document.getElementById(data.dataset.plot), {points, promise} = JSON.parse(data.textContent);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({stroke: colour("--soft"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line")}});
  const long = s => s >= 3600 ? `${+(s / 3600).toFixed(1)}h` : s >= 60 ? `${+(s / 60).toFixed(1)}m` : `${+s.toFixed(1)}s`;
  const series = [{}, {label: "seconds", stroke: colour("--accent"), width: 2, points: {show: points[0].length < 40}}];
  const values = [points[0], points[1]];
  if (promise) {
    series.push({label: "promised", stroke: colour("--warn"), dash: [6, 4], points: {show: false}});
    values.push(points[0].map(() => promise));
  }
  const size = () => ({width: place.clientWidth, height: 180});
  const moment = at => new Date(at * 1e3).toISOString();
  const days = points[0].at(-1) - points[0][0] > 86400;
  const drawn = new uPlot({...size(), series, legend: {show: false},
    cursor: {show: false}, scales: {y: {range: (_, low, high) => [0, Math.max(high, 1) * 1.1]}},
    axes: [{...axis(), space: 90, values: (_, marks) => marks.map(at => days ? moment(at).slice(5, 10) : moment(at).slice(11, 19))}, {...axis(), size: 60, values: (_, marks) => marks.map(long)}]}, values, place);
  addEventListener("resize", () => drawn.setSize(size()));
}
