package sql

import (
	"context"
	"crypto/sha256"
	dbsql "database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/settled-dev/settled/plugins/internal/decode"
	"github.com/settled-dev/settled/sdk"
)

// dialect is what differs between the databases.
type dialect interface {
	// open makes one new connection and logs in.
	open(ctx context.Context) (*session, error)
	placeholder(n int) string
	quote(name string) string
	// bind makes a driver value of nil, bool, string or number.
	bind(v any) any
	// begin bounds the session on the server's side, takes the key's lock and
	// opens a transaction that holds it. It returns the transaction's name, if any.
	begin(ctx context.Context, s *session, lock lockName) (id string, err error)
	// held reports whether a transaction of another session holds the lock.
	held(ctx context.Context, s *session, lock lockName) (bool, error)
	// guard finds out whether this principal sees every row of the table.
	guard(ctx context.Context, s *session) (sight, error)
	// examine checks the table's key and privileges, reading only.
	examine(ctx context.Context, s *session, faults *decode.Faults) error
	// classify says what an error of the server means.
	classify(err error) failure
	// moment is a time as a column value.
	moment(t time.Time) any
	// endpoint is host:port, or the file.
	endpoint() string
	// principal is who reads.
	principal() string
}

// sight is what a guard has seen.
type sight struct {
	complete bool
	how      string
}

// lockName is a hash of table and key, as the databases name their advisory locks.
type lockName [sha256.Size]byte

func lockOf(table []string, key string) lockName {
	return sha256.Sum256([]byte("settled\x00" + strings.Join(table, ".") + "\x00" + key))
}

// session is one connection, used by one call and then closed. It is taken from
// a pool of one, and held: database/sql repeats statements on another connection
// only when it is free to choose one.
type session struct {
	db   *dbsql.DB
	conn *dbsql.Conn
}

func openSession(ctx context.Context, connector driver.Connector) (*session, error) {
	db := dbsql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(0)
	conn, err := db.Conn(ctx)
	if err != nil {
		_ = db.Close() // there is no connection; the error that counts is err
		return nil, err
	}
	return &session{db: db, conn: conn}, nil
}

// close ends the connection; the server rolls back what is open on it.
func (s *session) close() {
	_ = s.conn.Close() // whatever it says, the connection is gone and nothing depends on it
	_ = s.db.Close()
}

func (s *session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := s.conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row scans the first row; none is dbsql.ErrNoRows.
func (s *session) row(ctx context.Context, query string, args []any, into ...any) error {
	return s.conn.QueryRowContext(ctx, query, args...).Scan(into...)
}

// object reads the first row of a query as a table of its columns, in order; nil = no row.
func (s *session) object(ctx context.Context, query string, args []any) (columns []string, values []any, err error) {
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, nil, rows.Err()
	}
	if columns, err = rows.Columns(); err != nil {
		return nil, nil, err
	}
	values = make([]any, len(columns))
	pointers := make([]any, len(columns))
	for i := range values {
		pointers[i] = &values[i]
	}
	if err := rows.Scan(pointers...); err != nil {
		return nil, nil, err
	}
	for rows.Next() {
		continue // the connection must be free for the next statement
	}
	return columns, values, rows.Err()
}

// class is what an error of the server proves of a transaction whose COMMIT was
// not sent.
type class uint8

const (
	classLost       class = iota // no answer
	classBusy                    // refused for now
	classValidation              // the same statement would fail again
	classNotFound
	classPermission
	classAuthentication
	classDuplicate // a unique key is taken
)

// failure is an error with its meaning.
type failure struct {
	class   class
	code    string
	message string
}

// beforeCommit is the outcome of a failure while no COMMIT was sent: whatever it
// was, the transaction cannot take effect any more.
func (f failure) beforeCommit(stage string) sdk.Outcome {
	message := fmt.Sprintf("%s: %s", stage, f.message)
	reject := func(reason sdk.RejectReason) sdk.Outcome {
		return &sdk.Rejected{Reason: reason, Code: f.code, Message: message}
	}
	switch f.class {
	case classBusy:
		return &sdk.NotExecuted{Basis: sdk.BasisBusy, Message: message}
	case classValidation, classDuplicate:
		// Another unique key than the effect's: the row of the effect was free, so
		// that what stands there is not ours.
		return reject(sdk.ReasonValidation)
	case classNotFound:
		return reject(sdk.ReasonNotFound)
	case classPermission:
		return reject(sdk.ReasonPermission)
	case classAuthentication:
		return &sdk.Rejected{Reason: sdk.ReasonAuthentication, Code: f.code, Message: message, WholeDestination: true}
	}
	return &sdk.NotExecuted{Basis: sdk.BasisRefused, Message: message + "; COMMIT was not sent"}
}

// atOpen is the outcome of a connection that did not come about.
func (f failure) atOpen() sdk.Outcome {
	message := "no connection: " + f.message
	switch f.class {
	case classAuthentication:
		return &sdk.Rejected{Reason: sdk.ReasonAuthentication, Code: f.code, Message: message, WholeDestination: true}
	case classPermission:
		return &sdk.Rejected{Reason: sdk.ReasonPermission, Code: f.code, Message: message, WholeDestination: true}
	case classNotFound:
		return &sdk.Rejected{Reason: sdk.ReasonNotFound, Code: f.code, Message: message, WholeDestination: true}
	case classBusy:
		return &sdk.NotExecuted{Basis: sdk.BasisBusy, WholeDestination: true, Message: message}
	}
	return &sdk.NotExecuted{Basis: sdk.BasisNotSent, WholeDestination: true, Message: message}
}

// token stands for a credential while a DSN is parsed.
func token(i int) string { return fmt.Sprintf("SETTLEDCREDENTIAL%dEND", i) }

// fill exchanges tokens for credentials in user and password, and complains
// about one that stands anywhere else.
func (c *configuration) fill(secrets map[string]string, user, password *string, faults *decode.Faults) {
	if *password != "" && !strings.HasPrefix(*password, token(0)[:len("SETTLEDCREDENTIAL")]) {
		faults.Errorf("/dsn", "holds a password; make it a credential: ${$secret.NAME}")
	}
	used := 0
	for i, name := range c.secretsInDSN {
		for _, field := range []*string{user, password} {
			if strings.Contains(*field, token(i)) {
				used++
				*field = strings.ReplaceAll(*field, token(i), secrets[name])
			}
		}
	}
	if used != len(c.secretsInDSN) {
		faults.Errorf("/dsn", "a credential may stand only for the user or the password")
	}
}

// ceilSeconds is d in whole seconds, rounded up.
func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// outcomes is the table of answers for the capability card.
func outcomes(driver string) []sdk.OutcomeRule {
	rules := func(class sdk.OutcomeClass, codes ...string) []sdk.OutcomeRule {
		var list []sdk.OutcomeRule
		for _, code := range codes {
			list = append(list, sdk.OutcomeRule{Code: code, Class: class})
		}
		return list
	}
	list := rules(sdk.ClassExecuted, "COMMIT answered")
	list = append(list, rules(sdk.ClassNotExecutedRetryable, "no connection", "lost before COMMIT")...)
	switch driver {
	case driverPostgres:
		list = append(list, rules(sdk.ClassNotExecutedRetryable, "40***", "53***", "55***", "57***")...)
		return append(list, rules(sdk.ClassNotExecutedFinal, "22***", "23***", "28***", "42***", "P0001")...)
	case driverMySQL:
		list = append(list, rules(sdk.ClassNotExecutedRetryable, "1205", "1213", "1040", "1203", "1969", "3024")...)
		return append(list, rules(sdk.ClassNotExecutedFinal, "1045", "1142", "1054", "1064", "1048", "1452", "4025")...)
	}
	list = append(list, rules(sdk.ClassNotExecutedRetryable, "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")...)
	return append(list, rules(sdk.ClassNotExecutedFinal, "SQLITE_CONSTRAINT", "SQLITE_ERROR", "SQLITE_READONLY")...)
}
