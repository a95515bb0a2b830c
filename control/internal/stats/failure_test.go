package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Matrix: OB-02
func TestAFailedHandshakeIsCountedByItsCauseOnce(t *testing.T) {
	at := func(stage handshake.Stage, err error) error { return &handshake.Error{Stage: stage, Err: err} }
	for _, c := range []struct {
		err  error
		want FailureCounters
	}{
		{at(handshake.StageBanner, &wire2.BannerError{Speech: wire2.SpeechHTTP}), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, &wire2.BannerError{Speech: wire2.SpeechMsgr1}), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, handshake.ErrFeatures), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, wire.ErrTruncated), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, io.EOF), FailureCounters{Other: 1}},
		{at(handshake.StageHello, wire.ErrTruncated), FailureCounters{Other: 1}},
		{at(handshake.StageAuth, fmt.Errorf("%w (canceled)", os.ErrDeadlineExceeded)), FailureCounters{Timeout: 1}},
		{at(handshake.StageAuth, frame.ErrTooLarge), FailureCounters{Limits: 1}},
		{at(handshake.StageAuth, handshake2.ErrTooLong), FailureCounters{Limits: 1}},
		{at(handshake.StageAuth, handshake.ErrTooManyRounds), FailureCounters{Limits: 1}},
		{fmt.Errorf("read: %w", handshake.ErrAuth), FailureCounters{Auth: 1}},
		{fmt.Errorf("%w: it is another", session.ErrWrongPeer), FailureCounters{WrongPeer: 1}},
		{fmt.Errorf("%w: old", session.ErrStale), FailureCounters{Stale: 1}},
		{at(handshake.StageHello, fmt.Errorf("%w (canceled)", door.ErrEvicted)), FailureCounters{Evicted: 1}},
		{net.ErrClosed, FailureCounters{Other: 1}},
		{errors.New("unheard of"), FailureCounters{Other: 1}},
	} {
		var n FailureCounters
		if *n.of(c.err)++; n != c.want {
			t.Errorf("%v: %+v", c.err, n)
		}
	}
}

// Whoever reads the statistics knows the counters by these names.
// Matrix: OB-02
func TestTheNamesOfTheDoorAndFailureCountersStay(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{FailureCounters{1, 2, 3, 4, 5, 6, 7, 8}, `{"banner":1,"timeout":2,"wrong_peer":3,"stale":4,"auth":5,"limits":6,"evicted":7,"other":8}`},
		{door.Counters{OverAll: 1, Source: 2, Prefix: 3, Evicted: 4, Memory: 5, Rate: 6, Waited: 7, Lined: 8, Late: 9}, `{"over_all":1,"source":2,"prefix":3,"evicted":4,"memory":5,"rate":6,"waited":7,"lined":8,"late":9}`},
	} {
		if got, err := json.Marshal(c.v); err != nil || string(got) != c.want {
			t.Errorf("%s (%v), want %s", got, err, c.want)
		}
	}
}

func TestAPeerThatSpeaksAnotherProtocolIsNamed(t *testing.T) {
	for speech, want := range map[wire2.Speech]string{
		wire2.SpeechMsgr2: "this is the v2 address of a daemon, want its v1 one", wire2.SpeechMsgr1: "this is the v1 address of a daemon, want its v2 one",
		wire2.SpeechHTTP: "this is a web server", wire2.SpeechSSH: "this is an SSH server", wire2.SpeechTLS: "this is a TLS server", wire2.SpeechOther: "this is no Ceph daemon",
	} {
		err := &Error{Stage: StageBanner, Err: &handshake.Error{Stage: handshake.StageBanner, Err: &wire2.BannerError{Speech: speech}}}
		if got := err.Advice(); got != want {
			t.Errorf("%s: %q, want %q", speech, got, want)
		}
	}
}
