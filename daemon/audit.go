package daemon

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/settled-dev/settled/journal"
	"github.com/settled-dev/settled/journal/sqlite"
)

// audit reads again what was settled: the succeeded effects of a window, or a
// sample of them, and everything that a person has decided. What has vanished,
// changed, or exists twice goes to a person. It writes nothing at the destination.
func (j *job) audit(ctx context.Context) error {
	list, err := j.d.db.Audit(ctx, sqlite.AuditScope{
		Destination: j.report.Destination, Since: j.report.StartedAt.Add(-j.item.conf.Window),
	}, j.cursor)
	if err != nil {
		return fmt.Errorf("list what was settled: %w", err)
	}
	var ids []int64
	for _, a := range list {
		if a.ByPerson || sampled(a.Key, j.item.name, j.nominal.Unix(), j.item.conf.Sample) {
			ids = append(ids, a.ID)
		}
	}
	return newSweeper(j, "audit", func(e journal.Effect) bool { return e.Phase.Closed() }).run(ctx, ids)
}

// sampled draws a share of the keys, another one for every run. The same run,
// taken up again, draws the same.
func sampled(key, schedule string, nominal int64, share float64) bool {
	if share >= 1 {
		return true
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%d\x00%s", schedule, nominal, key)
	return float64(h.Sum64()>>11)/(1<<53) < share
}
