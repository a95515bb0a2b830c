package handover

// State is the progress of the hand-over of a messenger. The zero value is before any
// hand-over. Its owner, the messenger, guards it by the lock of its sessions, so that no
// session is made between Freeze and the list of frozen ones.
type State struct{ now phase }

type phase uint8

const (
	phaseNone      phase = iota
	phasePreparing       // the successor opens its cores; nothing has changed
	phaseFrozen          // sessions and listeners stand still
	phaseDone            // committed: they are the successor's
)

// Begin begins a hand-over, if none is under way or done.
func (s *State) Begin() error {
	if s.now != phaseNone {
		return Errorf("another one is under way")
	}
	s.now = phasePreparing
	return nil
}

// Freeze says that the sessions stand still from here on.
func (s *State) Freeze() { s.now = phaseFrozen }

// Undo says that everything is as it was before Begin.
func (s *State) Undo() { s.now = phaseNone }

// Finish says that everything is the successor's.
func (s *State) Finish() { s.now = phaseDone }

// Idle says that no hand-over is under way or done: cores and listeners may change.
func (s *State) Idle() bool { return s.now == phaseNone }

// Frozen says that lossless sessions stand still, or are the successor's: none may
// be made.
func (s *State) Frozen() bool { return s.now >= phaseFrozen }

// Done says that everything is the successor's.
func (s *State) Done() bool { return s.now == phaseDone }
