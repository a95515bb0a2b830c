package rados

import (
	"context"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Watch is an interest in an object, which outlives restarts of OSDs and changes of the map. Its Close ends it.
type Watch = engine.Watch

// Handler is told of what happens to a watch: of notifications, and that it is lost.
type Handler = engine.Handler

// Notification is what somebody notifies.
type Notification = engine.Notification

// Answer is what one who watches says to a notification, or that it did not answer in time.
type Answer = osdop.Answer

// Watch has h told of each notification of the object, which must exist. timeout is how long the OSD keeps the watch of a
// client that is gone; 0: the OSD's default of 30 seconds.
func (o Object) Watch(ctx context.Context, timeout time.Duration, h Handler) (*Watch, error) {
	if lost := h.Lost; lost != nil {
		h.Lost = func(err error) { lost(o.explained(err)) }
	}
	w, err := o.pool.c.engine.Watch(ctx, o.target(), timeout, h)
	return w, o.explained(err)
}

// Notify tells all who watch the object, and returns their answers when all have answered, or timeout is over; 0: 30 seconds. Who
// did not answer in time has Missed set, and the error is ETIMEDOUT.
func (o Object) Notify(ctx context.Context, payload []byte, timeout time.Duration) ([]Answer, error) {
	answers, err := o.pool.c.engine.Notify(ctx, o.target(), payload, timeout)
	return answers, o.explained(err)
}
