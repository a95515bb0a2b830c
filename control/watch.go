package control

import (
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/ringmsgr/ringmsgr/control/keylog"
	"github.com/ringmsgr/ringmsgr/dataplane/tap"
)

// What the user sees of the wire: Config.Tracer and Config.KeyLog.

// watch asks the tracer for a tap, once the attempt has a socket.
func (a *attempt) watch(m *Messenger, accepted bool) {
	if m.cfg.Tracer == nil {
		return
	}
	a.tap = m.cfg.Tracer.Trace(tap.Socket{
		Accepted: accepted, Local: a.link.LocalAddr(), Peer: a.link.PeerAddr(),
	})
}

// ended says that the socket of an attempt is closed before it belonged to a handler.
func (a *attempt) ended(why error) {
	if a.tap != nil {
		a.tap.Ended(why)
	}
}

// keyLogger is Config.KeyLog as handshakes take it, nil without one. It warns that
// there is one.
func keyLogger(w io.Writer, log *slog.Logger) func(authDone, secret []byte) {
	if w == nil {
		return nil
	}
	log.Warn("the keys of connections in mode secure are logged: whoever has them can read what was recorded")
	var mu sync.Mutex
	return func(authDone, secret []byte) {
		line := keylog.Append(nil, authDone, secret)
		mu.Lock()
		_, err := w.Write(line)
		mu.Unlock()
		clear(line)
		if err != nil {
			log.Warn("the key of a connection could not be logged", "err", fmt.Errorf("key log: %w", err))
		}
	}
}
