package control_test

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Matrix: OB-03
func TestTheViewShowsTheCores(t *testing.T) {
	m, err := control.New(control.Config{
		Name:  wire.EntityName{Type: wire.OSD, ID: "0"},
		Plane: dataplane.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if err != nil {
		t.Fatal(err)
	}
	endWithTest(t, m)
	v := m.Plane()
	if v.Cores() != 2 || v.Info().Backend != uring.Epoll {
		t.Errorf("%d cores, %+v", v.Cores(), v.Info())
	}
	if err := m.RemoveCore(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if v.Cores() != 1 {
		t.Errorf("%d cores, one was removed", v.Cores())
	}
	if st, err := v.Stats(1); err != nil || st.Core != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := v.Stats(0); !errors.Is(err, control.ErrNoCore) {
		t.Errorf("core 0: %v", err)
	}
}
