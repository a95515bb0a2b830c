package flags

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

// Recording are --trace and --keylog.
type Recording struct {
	trace, keyLog string
	log           *trace.Log
	keys          *os.File
}

// Register makes the flags.
func (r *Recording) Register(fs *flag.FlagSet) {
	fs.StringVar(&r.trace, "trace", "", "`FILE` to write every frame to, payloads cut; at 64 MiB it goes on in a new one, and the old one is FILE.1")
	fs.StringVar(&r.keyLog, "keylog", "",
		"`FILE` to append the keys of connections in mode secure to, for \"ringmsgr decode --keys\"; who has it reads what they carry")
}

// Apply opens the files and sets cfg up. Close closes them, once the messenger is shut
// down.
func (r *Recording) Apply(cfg *control.Config) (err error) {
	if r.trace != "" {
		if r.log, err = trace.Create(r.trace, trace.Options{}); err != nil {
			return fmt.Errorf("--trace %s: %s", r.trace, reason(err))
		}
		cfg.Tracer = r.log
	}
	if r.keyLog != "" {
		if r.keys, err = os.OpenFile(r.keyLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return errors.Join(fmt.Errorf("--keylog %s: %s", r.keyLog, reason(err)), r.Close())
		}
		cfg.KeyLog = r.keys
	}
	return nil
}

// Close closes the files. The error is the first of each.
func (r *Recording) Close() error {
	var err error
	if r.log != nil {
		if e := r.log.Close(); e != nil {
			err = fmt.Errorf("--trace %s: %s", r.trace, reason(e))
		}
	}
	if r.keys != nil {
		if e := r.keys.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("--keylog %s: %s", r.keyLog, reason(e)))
		}
	}
	r.log, r.keys = nil, nil
	return err
}

// reason is why a system call failed, without what it went through.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
