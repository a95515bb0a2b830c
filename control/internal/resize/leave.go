package resize

// Conn has the facts about a connection that decide whether it leaves its core.
type Conn struct {
	Here     bool // the core owns it
	Boarding bool // an attempt has a socket for it, or is about to, and brings it to that socket's core
	Underway bool // it is about to leave for another core, or to arrive at one
	Closing  bool
	CoreRuns bool // the core can be given work
}

// Moment is the occasion on which a connection may leave its core.
type Moment uint8

// The moments.
const (
	Evacuation Moment = iota // all connections are asked: the core is being removed, or has failed
	StepEnded                // its session has opened or faulted
	Arrival                  // it has come from another core
)

// Leaves says whether a connection is to leave the core now.
//
// A connection that is boarding follows when its handshake ends, which is a step. A connection
// that is under way stays as it is: a second move would break the TCP connection that the
// first one waits for. At any moment but an evacuation a core that runs keeps its
// connections.
func (c Conn) Leaves(at Moment) bool {
	if !c.Here || c.Underway || c.Closing {
		return false
	}
	switch at {
	case Evacuation:
		return !c.Boarding
	case StepEnded:
		return !c.CoreRuns
	default:
		return !c.Boarding && !c.CoreRuns
	}
}
