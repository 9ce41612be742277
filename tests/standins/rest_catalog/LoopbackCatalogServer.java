package org.apache.iceberg.rest;

import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** {@link RESTCatalogServer}, which listens on every interface, on the loopback interface alone. */
public class LoopbackCatalogServer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = RCKUtils.environmentCatalogConfig();
    var catalog = CatalogUtil.buildIcebergCatalog("rest", settings, new org.apache.hadoop.conf.Configuration());
    var adapter = new RESTServerCatalogAdapter(new RESTCatalogServer.CatalogContext(catalog, settings));
    var context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(settings.get("rest.port")));
    var server = new Server(address);
    server.setHandler(context);
    server.start();
    server.join();
  }
}
