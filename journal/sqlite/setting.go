package sqlite

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/settled-dev/settled/journal"
)

// setting reads a setting on the writer; "" when it is not set.
func (db *DB) setting(name string) (string, error) {
	s, err := db.w.oneStr(context.Background(), "SELECT value FROM setting WHERE name=?", name)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return s, err
}

func (db *DB) settingInt(name string) (int64, error) {
	s, err := db.setting(name)
	if err != nil || s == "" {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}

func (db *DB) putSetting(name, value string) error {
	_, err := db.w.exec("INSERT INTO setting (name, value) VALUES (?1,?2) ON CONFLICT DO UPDATE SET value=?2", name, value)
	return err
}

// Setting reads a value that the daemon keeps across restarts; "" when it is not set.
func (tx *Tx) Setting(name string) (string, error) {
	s, err := tx.db.setting("d." + name)
	return s, tx.seen(err)
}

// PutSetting keeps a value across restarts.
func (tx *Tx) PutSetting(name, value string) error {
	if err := tx.begin(); err != nil {
		return err
	}
	return tx.seen(tx.db.putSetting("d."+name, value))
}

// Epoch is the daemon's own number.
func (tx *Tx) Epoch() int64 { return tx.db.epoch }

// DispatchOff says why nothing may be sent; "" = dispatch is on.
func (tx *Tx) DispatchOff() string { return tx.db.dispatchOff }

// SetDispatchOff turns dispatch off for a reason, or on with "". It survives
// restarts and is a line of the chain, in the daemon's own name.
func (tx *Tx) SetDispatchOff(reason string) error {
	return tx.setDispatchOff(reason, journal.By{Actor: "settled", Kind: journal.System, Origin: "engine"})
}

func (tx *Tx) setDispatchOff(reason string, by journal.By) error {
	if reason == tx.db.dispatchOff {
		return nil
	}
	if err := tx.begin(); err != nil {
		return err
	}
	if err := tx.seen(tx.db.putSetting("dispatch_off", reason)); err != nil {
		return err
	}
	kind := "dispatch_off"
	if reason == "" {
		kind = "dispatch_on"
		tx.db.wakes = append(tx.db.wakes, "all")
	}
	tx.db.dispatchOff = reason
	return tx.Note(noteBy(kind, by, reason))
}

// ClearRestored records that an operator confirmed a restored journal: dispatch
// comes on again. [DB.RestoredAt] stays, because unknown keys are read first for a while longer.
func (tx *Tx) ClearRestored(by journal.By) error {
	if err := tx.begin(); err != nil {
		return err
	}
	if err := tx.seen(tx.db.putSetting("restored", "0")); err != nil {
		return err
	}
	tx.db.restored = false
	if err := tx.Note(noteBy("confirm_restore", by, "")); err != nil {
		return err
	}
	return tx.setDispatchOff("", by)
}

// Restored reports whether the journal came from a backup and nobody has confirmed that yet.
func (tx *Tx) Restored() bool { return tx.db.restored }

// RestoredAt is when the journal was last found to come from a backup; zero = never.
func (tx *Tx) RestoredAt() time.Time { return tx.db.restoredAt }

func noteBy(kind string, by journal.By, because string) journal.Entry {
	if because == "" || by.Because != "" {
		because = by.Because
	}
	return journal.Entry{Kind: kind, Actor: by.Actor, ActorKind: by.Kind, Origin: by.Origin, Because: because}
}

// Restored reports whether the journal came from a backup and nobody has confirmed that yet.
func (db *DB) Restored() bool {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	return db.view.restored
}

// RestoredAt is when the journal was last found to come from a backup; zero = never.
func (db *DB) RestoredAt() time.Time {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	return db.view.restoredAt
}

// DispatchOff says why nothing may be sent; "" = dispatch is on.
func (db *DB) DispatchOff() string {
	db.view.mu.RLock()
	defer db.view.mu.RUnlock()
	return db.view.dispatchOff
}
