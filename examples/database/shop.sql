CREATE TABLE customers (
  id bigint PRIMARY KEY,
  email text NOT NULL,
  phone text,
  born date,
  tags text[],
  profile jsonb,
  notes text
);
-- A large text that an update does not change is not in the log: Debezium cannot write it.
ALTER TABLE customers ALTER COLUMN notes SET STORAGE EXTERNAL;

CREATE TABLE orders (
  shop int,
  number bigint,
  customer bigint NOT NULL,
  status text NOT NULL,
  total numeric(12, 2) NOT NULL,
  paid boolean,
  placed timestamptz NOT NULL,
  PRIMARY KEY (shop, number)
);

CREATE TABLE carts (
  id uuid PRIMARY KEY,
  customer bigint,
  items int NOT NULL
);
