package handshake2

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The link stays open and brings nothing more: whoever waited for more than the first
// wrong byte would wait for ever.
func TestWhatIsNoBannerIsToldWithItsFirstWrongByte(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	type said struct {
		bytes  string
		speech wire2.Speech
	}
	list := []said{
		{"ceph v0", wire2.SpeechMsgr1}, {"G", wire2.SpeechHTTP}, {"H", wire2.SpeechHTTP}, {"\x16", wire2.SpeechTLS},
		{"S", wire2.SpeechSSH}, {"\x00", wire2.SpeechOther}, {"ceph v3", wire2.SpeechOther},
	}
	magic := "ceph v2\n"
	for i := range magic {
		list = append(list, said{magic[:i] + "\xff", wire2.SpeechOther})
	}
	for _, c := range list {
		cc, ac := noneConfigs()
		for name, run := range map[string]func(handshake.Link) error{
			"connector": func(l handshake.Link) error { _, _, err := Connect(ctx, l, cc); return err },
			"acceptor":  func(l handshake.Link) error { _, _, err := Accept(ctx, l, ac); return err },
		} {
			for _, more := range []string{"", "more of it"} {
				link := &end{In: linktest.NewPipe([]byte(c.bytes + more)...), Out: linktest.NewPipe()}
				err := run(link)
				e, ok := errors.AsType[*wire2.BannerError](err)
				if !ok || e.Speech != c.speech || string(e.Got) != c.bytes || wantError(t, err).Stage != handshake.StageBanner {
					t.Errorf("%s, %q: %v", name, c.bytes, err)
				}
				if left := string(link.In.Content()); left != more {
					t.Errorf("%s, %q: %q is left", name, c.bytes, left)
				}
			}
		}
	}
}

func TestABannerThatEndsEarlyIsToldFromNoneAtAll(t *testing.T) {
	banner := wire2.Banner{Supported: wire.BannerRevision1}.AppendTo(nil)
	for n := range banner {
		_, ac := noneConfigs()
		_, _, err := Accept(t.Context(), linktest.Scripted(banner[:n]), ac)
		want := io.ErrUnexpectedEOF
		if n == 0 || n == wire2.BannerPrefixSize { // at the start of a part
			want = io.EOF
		}
		if !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
