package rados

import (
	"context"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Watch is an interest in an object, which outlives restarts of OSDs and changes of the map. Close ends it,
// Confirmed is when the OSD was last known to have it, Cookie is the number by which the OSD lists it.
type Watch = engine.Watch

// Handler gets the events of a watch, one after the other, on a goroutine that exists while there are events.
// Notified gets a Notification and returns the answer, for which the notifier waits. Lost gets the last
// event, unless Close was called: the object was removed, or notifications may be missing. Its error wraps
// ENOTCONN.
type Handler = engine.Handler

// Notification is a message of a notifier to all watchers: its ID, the global id of the Notifier, and the
// Payload, which is the handler's.
type Notification = engine.Notification

// Answer is the answer of one watcher to a notification: Client is its global id, Cookie its watch, Data the
// answer. Missed: it did not answer in time.
type Answer = osdop.Answer

// Watch has h told of each notification of the object, which must exist. timeout is how long the OSD keeps
// the watch of a client that is gone, at least 3 seconds; 0: the OSD's default of 30 seconds. A pause of
// reads and writes in the cluster that lasts longer ends the watch.
func (o Object) Watch(ctx context.Context, timeout time.Duration, h Handler) (*Watch, error) {
	if lost := h.Lost; lost != nil {
		h.Lost = func(err error) { lost(o.explained(err)) }
	}
	w, err := o.pool.c.engine.Watch(ctx, o.target(), timeout, h)
	return w, o.explained(err)
}

// Notify sends a payload to all watchers of the object, and returns their answers when all have answered, or
// timeout is over; 0: 30 seconds. Then the answers that did not come have Missed set, and the error is
// ETIMEDOUT.
func (o Object) Notify(ctx context.Context, payload []byte, timeout time.Duration) ([]Answer, error) {
	answers, err := o.pool.c.engine.Notify(ctx, o.target(), payload, timeout)
	return answers, o.explained(err)
}
