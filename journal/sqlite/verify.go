package sqlite
import "context"
func (db *DB) Verify(ctx context.Context, h string) (int, error) { return 0, nil }
