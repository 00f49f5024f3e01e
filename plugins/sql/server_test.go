package sql_test

import (
	"context"
	dbsql "database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/mattn/go-sqlite3"
)

// database is one real database that the tests started.
type database struct {
	driver string
	addr   string // host:port; empty for a file
	dsn    func(addr string) string
	secret string
	admin  *dbsql.DB
	ddl    map[string]string // by table
}

func (d *database) exec(t *testing.T, query string) {
	t.Helper()
	if _, err := d.admin.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (d *database) count(t *testing.T, query string) int {
	t.Helper()
	var n int
	if err := d.admin.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// fresh makes empty tables.
func (d *database) fresh(t *testing.T) {
	t.Helper()
	for _, table := range []string{"settled_effect", "payment"} {
		d.exec(t, "DROP TABLE IF EXISTS "+table)
		d.exec(t, d.ddl[table])
	}
	if d.driver == "postgres" {
		d.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
	}
}

func tables(driver string) map[string]string {
	key, moment, tail := "key varchar(255)", "timestamptz", ""
	switch driver {
	case "mysql":
		key, moment, tail = "`key` varbinary(255)", "datetime(6)", " ENGINE=InnoDB"
	case "sqlite":
		key, moment = "key TEXT", "TEXT"
	}
	return map[string]string{
		"settled_effect": "CREATE TABLE settled_effect (" + key + " PRIMARY KEY NOT NULL, digest varchar(80) NOT NULL, attempt varchar(255) NOT NULL, at " + moment + " NOT NULL)" + tail,
		"payment": "CREATE TABLE payment (id varchar(100) PRIMARY KEY NOT NULL, dispatch_key varchar(255) NOT NULL, payee varchar(40) NOT NULL, " +
			"cents integer NOT NULL CHECK (cents > 0), rate numeric(8,3), paid boolean, state varchar(20) NOT NULL)" + tail,
	}
}

// unprivileged gives a directory and process attributes of a user that is not
// root: database servers refuse to run as root.
func unprivileged(t *testing.T, wanted string) (string, *syscall.SysProcAttr) {
	t.Helper()
	dir, err := os.MkdirTemp("", "settled-sql-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		account, err := user.Lookup(wanted)
		if err != nil {
			t.Skipf("running as root and there is no user %s to run the server: %v", wanted, err)
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return dir, attr
}

func binary(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Skipf("%s is not installed", pattern)
	}
	return found[len(found)-1]
}

func command(t *testing.T, attr *syscall.SysProcAttr, dir, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.SysProcAttr = dir, attr
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "LC_ALL=C", "TMPDIR=" + dir}
	return cmd
}

// start runs a server and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT)
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
		}
		_ = log.Close()
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// reachable opens the administrator's connections once the server answers.
func reachable(t *testing.T, driver, dsn, logFile string) *dbsql.DB {
	t.Helper()
	db, err := dbsql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err = db.PingContext(context.Background()); err == nil {
			return db
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(logFile)
			t.Fatalf("the server does not answer: %v\n%s", err, log)
		}
	}
}

const appPassword = "p@ss:/w?rd'\\ 1"

func startPostgres(t *testing.T) *database {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a PostgreSQL server")
	}
	initdb := binary(t, "/usr/lib/postgresql/*/bin/initdb")
	dir, attr := unprivileged(t, "nobody")
	data := filepath.Join(dir, "data")
	if out, err := command(t, attr, dir, initdb, "-D", data, "-U", "admin", "-A", "trust", "-N", "-E", "UTF8").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	// The administrator needs no password, the application does.
	hba := "host all admin 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	start(t, command(t, attr, dir, filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data, "-p", port,
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=30"), dir)
	addr := "127.0.0.1:" + port
	d := &database{driver: "postgres", addr: addr, secret: appPassword, ddl: tables("postgres")}
	d.admin = reachable(t, "pgx", "postgres://admin@"+addr+"/postgres?sslmode=disable", filepath.Join(dir, "server.log"))
	d.exec(t, "CREATE ROLE app LOGIN PASSWORD '"+`p@ss:/w?rd''\ 1`+"'")
	d.dsn = func(addr string) string {
		return "postgres://app:${$secret.db}@" + addr + "/postgres?sslmode=disable"
	}
	return d
}

func startMariaDB(t *testing.T) *database {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a MariaDB server")
	}
	server, install := binary(t, "/usr/sbin/mariadbd"), binary(t, "/usr/bin/mariadb-install-db")
	dir, attr := unprivileged(t, "nobody")
	data := filepath.Join(dir, "data")
	if out, err := command(t, attr, dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	port := freePort(t)
	start(t, command(t, attr, dir, server, "--no-defaults", "--datadir="+data, "--port="+port, "--bind-address=127.0.0.1",
		"--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"), "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"), dir)
	addr := "127.0.0.1:" + port
	d := &database{driver: "mysql", addr: addr, secret: appPassword, ddl: tables("mysql")}
	d.admin = reachable(t, "mysql", "root@tcp("+addr+")/mysql", filepath.Join(dir, "server.log"))
	d.exec(t, "CREATE DATABASE shop")
	d.exec(t, `CREATE USER app@'127.0.0.1' IDENTIFIED BY 'p@ss:/w?rd''\\ 1'`)
	d.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app@'127.0.0.1'")
	d.admin = reachable(t, "mysql", "root@tcp("+addr+")/shop", filepath.Join(dir, "server.log"))
	d.dsn = func(addr string) string { return fmt.Sprintf("app:${$secret.db}@tcp(%s)/shop", addr) }
	return d
}

func startSQLite(t *testing.T) *database {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.db")
	d := &database{driver: "sqlite", ddl: tables("sqlite"), dsn: func(string) string { return file }}
	d.admin = reachable(t, "sqlite3", "file:"+file+"?_busy_timeout=5000", "")
	return d
}
