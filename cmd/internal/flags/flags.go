// Package flags reads the values of the flags that all programs have. Errors
// are usage errors that name the flag.
package flags

import (
	"os"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Revision reads --rev: rev0 says that msgr2.0 is the highest.
func Revision(n int) (rev0 bool, err error) {
	if n != 0 && n != 1 {
		return false, cli.Usagef("--rev %d: want 0 or 1", n)
	}
	return n == 0, nil
}

// Name reads --name.
func Name(text string) (wire.EntityName, error) {
	name, err := wire.ParseEntityName(text)
	if err != nil {
		return name, cli.Usagef("--name %q: want TYPE.ID, such as client.admin, mon.a or osd.0", text)
	}
	return name, nil
}

// Timeout checks --timeout.
func Timeout(d time.Duration) error {
	if d <= 0 {
		return cli.Usagef("--timeout %v: want more than nothing", d)
	}
	return nil
}

// Modes reads --mode, a comma list of connection modes. Without one it is nil:
// the defaults.
func Modes(text string) ([]auth.Mode, error) {
	if text == "" {
		return nil, nil
	}
	list, err := auth.ParseModes(text)
	if err != nil {
		return nil, cli.Usagef("--mode %q: want crc, secure, or both with a comma, the preferred one first", text)
	}
	return list, nil
}

// Keyring reads the file of --keyring. The caller wipes it.
func Keyring(file string) (*cephx.Keyring, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, cli.Usagef("--keyring %s: %s", file, reason(err))
	}
	defer f.Close()
	ring, err := cephx.ReadKeyring(f)
	if err != nil {
		return nil, cli.Usagef("--keyring %s: %w", file, err)
	}
	return ring, nil
}
