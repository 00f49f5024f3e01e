// Package sql is the built-in adapter for databases: PostgreSQL, MySQL or
// MariaDB, and SQLite. An operation is one SQL statement of the operator; its
// values come from the payload as bound parameters, never as text.
//
// # The table
//
// Every statement runs in one transaction with a row of its own in the table
// settled_effect, whose primary key is the effect's key. The row is committed
// with the statement or not at all, so that it is exact proof of either:
//
//	-- PostgreSQL
//	CREATE TABLE settled_effect (
//	    key     varchar(255) PRIMARY KEY,
//	    digest  varchar(80)  NOT NULL,
//	    attempt varchar(255) NOT NULL,
//	    at      timestamptz  NOT NULL
//	);
//	GRANT SELECT, INSERT, UPDATE ON settled_effect TO the_adapter;
//
//	-- MySQL and MariaDB (binary: keys are compared byte for byte)
//	CREATE TABLE settled_effect (
//	    `key`   varbinary(255) PRIMARY KEY,
//	    digest  varchar(80)    NOT NULL,
//	    attempt varbinary(255) NOT NULL,
//	    at      datetime(6)    NOT NULL
//	) ENGINE=InnoDB;
//	GRANT SELECT, INSERT, UPDATE ON the_database.settled_effect TO the_adapter;
//
//	-- SQLite
//	CREATE TABLE settled_effect (
//	    key     TEXT PRIMARY KEY NOT NULL,
//	    digest  TEXT NOT NULL,
//	    attempt TEXT NOT NULL,
//	    at      TEXT NOT NULL
//	);
//
// UPDATE is needed only for fences. Check verifies all of it.
//
// # Guarantees
//
// A Dispatch uses one connection of its own, makes one transaction on it and
// repeats nothing. In this order: connect; bound the session on the server's
// side; take a lock named after the key; begin; insert the row; run the
// statement; test the number of rows; read the object; commit. Each step waits
// for the answer to the one before it. Therefore whatever fails before COMMIT is
// sent is proof that nothing happened and nothing will, because no server
// commits a transaction without being told to. Whatever goes wrong from the
// sending of COMMIT on is unknown.
//
// A Read is strong and complete. When it sees no row it looks whether the lock
// is held: then an earlier transaction is still open and the answer is pending.
// A lock that is free after a dispatch that reached COMMIT means that its
// transaction has ended, and the row is looked for once more after that.
//
// A Fence takes the key with a void row. It waits for an open transaction of
// the key and then meets its row, or nothing of it can land any more. A later
// dispatch replaces the void row only on condition of its revision.
//
// # What a crash leaves behind
//
// Nothing is kept between calls. A crash of the adapter leaves at most an open
// transaction on the server. It ends at the latest after timeouts.idle without
// a COMMIT, or timeouts.statement after one that was on the way; their sum is
// the declared late-effect bound. An SQLite transaction ends with the process.
// Not covered: a failover that loses what the old primary had committed.
package sql
