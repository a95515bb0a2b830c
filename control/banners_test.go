package control_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A peer that sends one wrong byte and then waits holds its place among
// the half-open connections no longer than that, and is counted by what it was.
// Matrix: HS-06, HS-07, HI-20
func TestABannerThatCanBeNoneIsClosedWithItsFirstWrongByteAndCounted(t *testing.T) {
	var book logbook
	server := newParty(t, control.Config{Name: entity(t, "mon.a"), Logger: book.logger(false), HandshakeTimeout: time.Hour}).bind(t)
	own := wire.Banner{Supported: wire.BannerRevision1}.AppendTo(nil)
	var want control.BannerCounters
	for i, c := range []struct {
		said string
		kind *uint64
	}{
		{"ceph v0", &want.Msgr1}, {"G", &want.HTTP}, {"GET / HTTP/1.1\r\n\r\n", &want.HTTP}, {"\x16", &want.TLS}, {"\x16\x03\x01", &want.TLS},
		{"S", &want.SSH}, {"\x00", &want.Other}, {"ceph v2\x00", &want.Other}, {"ceph v3", &want.Other},
	} {
		*c.kind++
		conn := server.call(t)
		_, err := io.WriteString(conn, c.said)
		must(t, err)
		got, err := io.ReadAll(conn) // our end stays open for writing
		if !bytes.Equal(got, own) || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: answered %x, %v; want our banner and the end", c.said, got, err)
		}
		happens(t, "the failure", func() bool { return counters(t, server.m).AcceptFailures == uint64(i+1) })
		if n := counters(t, server.m).BadBanners; n != want {
			t.Errorf("%q: counted %+v, want %+v", c.said, n, want)
		}
	}
	if n := counters(t, server.m).AuthFailures; n != 0 {
		t.Errorf("%d of them count as failed authentications", n)
	}
}

// What fails with a good banner is not counted among the bad ones.
func TestAPeerThatFailsLaterHasNoBadBanner(t *testing.T) {
	server := newParty(t, control.Config{Name: entity(t, "mon.a")}).bind(t)
	for i, said := range [][]byte{nil, []byte("ceph v2"), wire.Banner{Required: 1 << 63}.AppendTo(nil), append(wire.Banner{}.AppendTo(nil), make([]byte, 32)...)} {
		conn := server.call(t)
		_, err := conn.Write(said)
		must(t, err)
		must(t, conn.Close())
		happens(t, "the failure", func() bool { return counters(t, server.m).AcceptFailures == uint64(i+1) })
	}
	if n := counters(t, server.m).BadBanners; n != (control.BannerCounters{}) {
		t.Errorf("counted %+v", n)
	}
}
