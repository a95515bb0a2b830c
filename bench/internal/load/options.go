package load

import (
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
)

// Options are the connections of a client. The command line was checked.
type Options struct {
	Addr  string `json:"addr"`  // IP:port
	Nonce uint32 `json:"nonce"` // of the server's address, if it is not raw
	PID   int    `json:"pid"`   // process of the server, for its CPU clock
	Raw   bool   `json:"raw"`   // bare bytes: no handshake, no frames
	// Secure connects in secure mode: every frame is encrypted, decrypted and
	// checked here too.
	Secure bool `json:"secure,omitempty"`
	// Msgr1 speaks msgr1, without encryption of messages.
	Msgr1 bool `json:"msgr1,omitempty"`
	Conns int  `json:"conns"` // connections
	Depth int  `json:"depth"` // requests open per connection
	Size  int  `json:"size"`  // bytes of payload per request
}

// Slice is the length of a load.
type Slice struct {
	Warm    time.Duration `json:"warm"`     // at least this long before the window
	WarmMax time.Duration `json:"warm_max"` // at most this long, if by then not every open request was answered once
	Window  time.Duration `json:"window"`   // measured, at least this long
	// WindowMax bounds the window if it would have to be longer for as many
	// replies as there are open requests.
	WindowMax time.Duration `json:"window_max"`
	// Active is the number of connections that carry requests, with as many idle ones between
	// each two of them. 0: all.
	Active int `json:"active,omitempty"`
	// Rate is the number of requests per second, on all connections together, independent of
	// the replies; latencies count from the time at which a request was due. 0: each reply
	// brings the next request.
	Rate float64 `json:"rate,omitempty"`
}

// Spread chooses the active ones of all connections. Error: there are not so many.
func Spread[T any](s Slice, all []T) ([]T, error) {
	switch {
	case s.Active == 0:
		return all, nil
	case s.Active < 0 || s.Active > len(all):
		return nil, fmt.Errorf("%d of %d connections cannot be active", s.Active, len(all))
	}
	chosen := make([]T, s.Active)
	for i := range chosen {
		chosen[i] = all[i*len(all)/len(chosen)]
	}
	return chosen, nil
}

// Result are the figures of one slice. CPU times and latencies belong to the window. Bytes is
// the base of the rate: with large messages a window has few whole ones, and a fraction at both
// ends. Total counts the messages of warm-up and drain too.
type Result struct {
	Bytes     uint64          `json:"bytes"`              // received within the window
	PerReply  int             `json:"per_reply"`          // bytes of a reply on the wire
	Total     uint64          `json:"total"`              // answered from first to last
	Window    time.Duration   `json:"window"`             // real length
	ServerCPU time.Duration   `json:"server_cpu"`         // user and system time of the server process
	ClientCPU time.Duration   `json:"client_cpu"`         // the same of this process
	Restarts  int             `json:"restarts,omitempty"` // of a client that hung or aborted
	Steady    bool            `json:"steady"`             // every open request was answered once before the window
	Latency   *perf.Histogram `json:"latency"`            // from the issue to the end of the reply, of replies within the window
}
