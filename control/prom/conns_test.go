package prom

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func TestPeersOfUnknownTypesShareOneSeries(t *testing.T) {
	var conns []control.ConnStats
	for typ := range 256 {
		conns = append(conns, control.ConnStats{ID: uint64(typ + 1), PeerType: wire.EntityType(typ).String(), State: "ready"})
	}
	out := make(chan prometheus.Metric, 5*len(conns))
	newConnMetrics(nil).show(out, conns)
	close(out)
	types := map[string]float64{}
	for m := range out {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Fatal(err)
		}
		for _, l := range d.GetLabel() {
			if l.GetName() == "peer_type" {
				types[l.GetValue()] = max(types[l.GetValue()], d.GetGauge().GetValue())
			}
		}
	}
	if len(types) > 10 || types["osd"] != 1 || types[otherType] != float64(len(conns)-len(types)+1) {
		t.Errorf("%d peers, each of another type, have the labels %v", len(conns), types)
	}
}
