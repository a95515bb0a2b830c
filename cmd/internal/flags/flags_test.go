package flags

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestRightValuesAreRead(t *testing.T) {
	if b, log, err := (&Engine{"epoll", "off"}).Read(nil); b != uring.Epoll || log.Enabled(t.Context(), slog.LevelError) || err != nil {
		t.Errorf("%v, %v", b, err)
	}
	for n, want := range []bool{true, false} {
		if rev0, err := Revision(n); rev0 != want || err != nil {
			t.Errorf("revision %d: %v, %v", n, rev0, err)
		}
	}
	if n, err := Name("osd.3"); n != (wire.EntityName{Type: wire.OSD, ID: "3"}) || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if l, err := Modes("secure,crc"); len(l) != 2 || l[0] != auth.Secure || l[1] != auth.CRC || err != nil {
		t.Errorf("%v, %v", l, err)
	}
	if l, err := Modes(""); l != nil || err != nil {
		t.Errorf("%v, %v", l, err)
	}
	if err := Timeout(time.Nanosecond); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "keyring")
	if err := os.WriteFile(file, []byte("[client.x]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := Keyring(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := ring.Lookup(wire.EntityName{Type: wire.Client, ID: "x"}); !ok {
		t.Error("the key is not there")
	}
}

func TestWrongValuesNameTheirFlag(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "keyring")
	if err := os.WriteFile(broken, []byte("[client.x]\nkey = nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, read := range map[string]func() error{
		`--backend "kqueue"`: func() error { _, _, err := (&Engine{"kqueue", "warn"}).Read(nil); return err },
		"--rev 2":            func() error { _, err := Revision(2); return err },
		"--name":             func() error { _, err := Name("nobody"); return err },
		"--mode":             func() error { _, err := Modes("loud"); return err },
		`--log-level "loud"`: func() error { _, _, err := (&Engine{"auto", "loud"}).Read(nil); return err },
		"--timeout 0s":       func() error { return Timeout(0) },
		"--timeout -1s":      func() error { return Timeout(-time.Second) },
		"--keyring " + broken + ".not: no such file": func() error { _, err := Keyring(broken + ".not"); return err },
		"--keyring " + broken:                        func() error { _, err := Keyring(broken); return err },
	} {
		if err := read(); !cli.IsUsage(err) || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
