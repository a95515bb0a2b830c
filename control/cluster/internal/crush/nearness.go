package crush

import (
	"slices"
	"strings"
)

// maxDepth bounds the levels of a hierarchy, which may contain itself.
const maxDepth = 64

// Distances says how far devices are from a location, which has elements of the form "host=a": the distance
// is the lowest type of a bucket above the device that the location names. A device for which there is none
// has no distance. Buckets of device classes do not count. Source: crush/CrushWrapper.cc.
func (m *Map) Distances(location []string) map[int32]int32 {
	parents := map[int32]*bucket{} // of two buckets with one item the first counts
	for _, b := range slices.Backward(m.buckets) {
		if b == nil || strings.Contains(m.names[b.id], "~") {
			continue
		}
		for _, item := range b.items {
			parents[item] = b
		}
	}
	near := map[int32]int32{}
	for device, b := range parents {
		for level := 0; device >= 0 && b != nil && level < maxDepth; level++ {
			least, known := near[device]
			if slices.Contains(location, m.types[b.kind]+"="+m.names[b.id]) && (!known || b.kind < least) {
				near[device] = b.kind
			}
			b = parents[b.id]
		}
	}
	return near
}
