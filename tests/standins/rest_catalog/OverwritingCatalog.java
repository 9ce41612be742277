package calve;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Map;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.jdbc.UncheckedSQLException;

/**
 * Iceberg's JDBC catalog, with what the specification has {@code overwrite} for: in no release so far can it register a
 * table over one that it has. One statement moves the pointer.
 */
public class OverwritingCatalog extends JdbcCatalog {
  private static final String MOVE =
      "UPDATE iceberg_tables SET previous_metadata_location = metadata_location, metadata_location = ?"
          + " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?";
  private String name;
  private String uri;

  @Override
  public void initialize(String name, Map<String, String> properties) {
    this.name = name;
    this.uri = properties.get("uri");
    super.initialize(name, properties);
  }

  @Override
  public Table registerTable(TableIdentifier table, String location, boolean overwrite) {
    if (!overwrite || !tableExists(table)) {
      return registerTable(table, location);
    }
    try (Connection connection = DriverManager.getConnection(uri);
        PreparedStatement move = connection.prepareStatement(MOVE)) {
      move.setString(1, location);
      move.setString(2, name);
      move.setString(3, String.join(".", table.namespace().levels()));
      move.setString(4, table.name());
      move.executeUpdate();
    } catch (SQLException failed) {
      throw new UncheckedSQLException(failed, "Cannot move %s", table);
    }
    return loadTable(table);
  }
}
