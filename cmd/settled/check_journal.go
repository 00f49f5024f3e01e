package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/settled-dev/settled/daemon/config"
	"github.com/settled-dev/settled/journal/sqlite"
)

// statfsType is the filesystem's magic number under a path.
func statfsType(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return int64(st.Type), nil
}

// remoteFilesystem names a filesystem whose locks or fsync a journal cannot
// rest on; "" = it can.
func remoteFilesystem(magic int64) string {
	// The cast keeps the upper half away: some kernels sign-extend the number.
	return map[uint32]string{
		0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x01021997: "9p", 0x65735546: "fuse",
		0x00c36400: "ceph", 0x5346414f: "afs", 0x73757245: "coda",
	}[uint32(magic)]
}

// memoryFilesystem names a filesystem that does not survive a reboot.
func memoryFilesystem(magic int64) string {
	return map[uint32]string{0x01021994: "tmpfs", 0x858458f6: "ramfs"}[uint32(magic)]
}

// journal looks at where the journal lies, and into it.
func (r *checkReport) journal(ctx context.Context, cfg *config.Config, o checkOptions) {
	dir, marker := filepath.Dir(cfg.Journal.Path), filepath.Dir(cfg.Journal.Generation)
	fits := r.directory("journal.path", dir, o)
	if sameDirectory(dir, marker) {
		r.journalFault("journal.generation", "the generation marker lies in the journal's own directory "+marker+", so a restore would bring both back unnoticed",
			"name another directory in journal.generation")
	} else {
		fits = r.directory("journal.generation", marker, o) && fits
	}
	if !fits {
		return // whatever is in it cannot be told well
	}
	opts := sqlite.Options{Path: cfg.Journal.Path, GenerationPath: cfg.Journal.Generation}
	if name := cfg.Journal.ChainKey; name != "" {
		secret, err := cfg.Credential(name)
		if err != nil || len(secret) < minChainKey {
			return // told with the credentials; without the key only half of it could be judged
		}
		opts.ChainKey = []byte(secret)
	}
	in, err := sqlite.Inspect(ctx, opts)
	if err != nil {
		r.journalFault("journal.path", cfg.Journal.Path+": "+err.Error(), journalHint(err))
		return
	}
	r.inspected(cfg.Journal, in)
}

func (r *checkReport) journalFault(key, message, hint string) {
	r.add(checkItem{Group: "journal", Level: levelFault, Key: key, Message: message, Hint: hint})
}

func (r *checkReport) journalWarn(key, message, hint string) {
	r.add(checkItem{Group: "journal", Level: levelWarn, Key: key, Message: message, Hint: hint})
}

func journalHint(err error) string {
	switch {
	case errors.Is(err, sqlite.ErrCorrupt):
		return "settled journal check, and look for the last backup"
	case errors.Is(err, fs.ErrPermission):
		return "check as the user that runs the daemon: sudo -u settled settled check"
	}
	return "ls -l the file and its directory; the user that runs the daemon must own both"
}

// directory judges one directory that the daemon writes to, or will make.
func (r *checkReport) directory(key, dir string, o checkOptions) (fits bool) {
	there := dir
	for {
		st, err := os.Stat(there)
		if errors.Is(err, fs.ErrNotExist) && there != filepath.Dir(there) {
			there = filepath.Dir(there)
			continue
		}
		if err != nil {
			r.journalFault(key, "the directory "+dir+" cannot be looked at: "+err.Error(), "check as the user that runs the daemon: sudo -u settled settled check")
			return false
		}
		if !st.IsDir() {
			r.journalFault(key, there+" is not a directory", "name another place in "+key)
			return false
		}
		break
	}
	if err := unix.Faccessat(unix.AT_FDCWD, there, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		r.journalFault(key, fmt.Sprintf("this user (uid %d) may not write to %s: %v", os.Geteuid(), there, err),
			"install -d -m 0750 -o settled -g settled "+dir+", and check as that user: sudo -u settled settled check")
		return false
	}
	magic, err := o.fsType(there)
	switch {
	case err != nil:
		r.journalFault(key, "the filesystem of "+there+" cannot be told: "+err.Error(), "name another place in "+key)
		return false
	case remoteFilesystem(magic) != "":
		r.journalFault(key, fmt.Sprintf("%s lies on %s, whose locks and fsync nobody may rest on: intents could be lost", there, remoteFilesystem(magic)),
			"name a directory on a local disk in "+key)
		return false
	case memoryFilesystem(magic) != "":
		r.journalWarn(key, fmt.Sprintf("%s lies on %s: a reboot forgets it", there, memoryFilesystem(magic)), "name a directory on a local disk in "+key)
	}
	r.directoryMode(key, dir, there)
	return true
}

// directoryMode says that a directory is fine, or that others may change what is in it.
func (r *checkReport) directoryMode(key, dir, there string) {
	if there != dir {
		r.add(checkItem{Group: "journal", Level: levelOK, Key: key, Message: dir + " will be made, mode 0750"})
		return
	}
	st, err := os.Stat(dir)
	if err != nil {
		r.journalFault(key, err.Error(), "")
		return
	}
	switch perm := st.Mode().Perm(); {
	case perm&0o002 != 0:
		r.journalFault(key, fmt.Sprintf("every user of this machine may write to %s (mode %04o)", dir, perm), "chmod 0750 "+dir)
	case perm&0o005 != 0:
		r.journalWarn(key, fmt.Sprintf("every user of this machine may look into %s (mode %04o)", dir, perm), "chmod 0750 "+dir)
	default:
		r.add(checkItem{Group: "journal", Level: levelOK, Key: key, Message: fmt.Sprintf("%s, mode %04o", dir, perm)})
	}
}

// sameDirectory compares what the paths lead to, not how they are spelled.
func sameDirectory(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	sa, erra := os.Stat(a)
	sb, errb := os.Stat(b)
	return erra == nil && errb == nil && os.SameFile(sa, sb)
}

// inspected tells what the journal itself says.
func (r *checkReport) inspected(j config.Journal, in sqlite.Inspection) {
	ok := func(message string) {
		r.add(checkItem{Group: "journal", Level: levelOK, Key: "journal.path", Message: message})
	}
	if in.Holder != "" {
		r.Running = in.Holder
		ok("a daemon works with it (" + in.Holder + ")")
	}
	switch {
	case !in.Exists:
		ok(j.Path + " will be made")
	case in.Schema > in.Newest:
		r.journalFault("journal.path", fmt.Sprintf("%s has schema %d, this program (%s) knows up to %d", j.Path, in.Schema, version(), in.Newest),
			"install the newer program; there is no way back to an older schema")
		return
	case in.Schema < in.Newest:
		ok(fmt.Sprintf("%s has schema %d and will be brought to %d at the next start; back it up first: settled journal backup FILE", j.Path, in.Schema, in.Newest))
	default:
		ok(fmt.Sprintf("%s, schema %d, epoch %d, %d events", j.Path, in.Schema, in.Epoch, in.Head))
	}
	if in.KeyErr != nil {
		r.journalFault("journal.chain_key", in.KeyErr.Error(), "put the key back from where the journal came")
	}
	if in.Restored != "" {
		r.journalWarn("journal.generation", "the next start will take it for a restored journal and send nothing: "+in.Restored,
			"after the start: settled journal confirm-restore --old-daemon-dead-at T --because WHY")
	}
	if in.DispatchOff != "" {
		r.journalWarn("journal.path", "nothing is sent: "+in.DispatchOff, "settled status")
	}
	if in.Unclean {
		r.journalWarn("journal.path", "the last daemon stopped without closing it; the next start checks it", "settled serve")
	}
}
