package sqlite

import (
	"context"
	"time"
)

// TakeWebhook notes a message of a destination, and reports whether it is the
// first with this id. Its place is kept with whatever the operation does about it.
func (tx *Tx) TakeWebhook(destination, eventID, key string, at time.Time) (fresh bool, err error) {
	if err := tx.begin(); err != nil {
		return false, err
	}
	n, err := tx.db.w.exec("INSERT OR IGNORE INTO webhook (destination, event_id, at, key) VALUES (?,?,?,?)", destination, eventID, us(at), key)
	return n == 1, tx.seen(err)
}

// pruneWebhooks forgets messages that were taken up before a time, some at a
// time; more says that there are others.
func (tx *Tx) pruneWebhooks(before micros) (more bool, err error) {
	n, err := tx.db.w.oneInt(context.Background(), "SELECT count(*) FROM (SELECT 1 FROM webhook WHERE at < ? LIMIT 1)", before)
	if err != nil || n == 0 {
		return false, tx.seen(err)
	}
	if err := tx.begin(); err != nil {
		return false, err
	}
	n, err = tx.db.w.exec(`DELETE FROM webhook WHERE (destination, event_id) IN
		(SELECT destination, event_id FROM webhook WHERE at < ? ORDER BY at LIMIT ?)`, before, pruneSlice)
	return n == pruneSlice, tx.seen(err)
}
