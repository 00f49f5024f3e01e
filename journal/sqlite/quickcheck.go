package sqlite

import (
	"context"
	"fmt"
)

// QuickCheck asks the database whether its file is whole; [ErrCorrupt] when it
// is not. It reads every page once, on one of the read connections.
func (db *DB) QuickCheck(ctx context.Context) error {
	return db.read(ctx, func(c *conn) error {
		s, err := c.oneStr(ctx, "PRAGMA quick_check(1)")
		if err == nil && s != "ok" {
			err = fmt.Errorf("%w: %s", ErrCorrupt, s)
		}
		return err
	})
}
