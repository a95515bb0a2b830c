package machine

import (
	"errors"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

var errBackoffs = errors.New("the OSD refuses too many ranges of objects at once")

// covers says whether a back-off holds an operation.
func covers(b *osdop.Backoff, o *Op) bool {
	if b.PG != o.at.PG || b.Shard != o.at.Shard {
		return false
	}
	h := o.at.object.HObject(o.at.Hash)
	at := b.Begin.Compare(&h)
	return at == 0 || at < 0 && h.Compare(&b.End) < 0
}

// Backoff takes the back-off of an OSD for a range of objects. The OSD has dropped the operations on them:
// they are sent when it admits the range again. The error says that the session must end.
func (m *Machine) Backoff(s *Session, b *osdop.Backoff) error {
	if s.state != up {
		return nil
	}
	switch b.What {
	case osdop.Block:
		if len(s.backoffs) >= maxBackoffs {
			return errBackoffs
		}
		s.backoffs = append(s.backoffs, *b)
		for o := m.ops.first; o != nil; o = o.next {
			if o.Session == s && covers(b, o) {
				o.sent = false
			}
		}
		ack := *b
		ack.What, ack.Epoch = osdop.AckBlock, m.Epoch()
		m.do(Action{What: Ack, Session: s, Backoff: &ack})
	case osdop.Unblock:
		s.backoffs = slices.DeleteFunc(s.backoffs, func(a osdop.Backoff) bool { return a.ID == b.ID && a.PG == b.PG && a.Shard == b.Shard })
	}
	m.flush()
	return nil
}
