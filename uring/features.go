package uring

import "slices"

// Names of the ring's features, as in Info.
const (
	featureDeferTaskrun   = "defer_taskrun"
	featureNoSQArray      = "no_sqarray"
	featureRegisteredRing = "registered_ring"
	featureFileTable      = "file_table"
	// featureRegisteredBuffers is memory that stays pinned (RegisterMemory).
	featureRegisteredBuffers = "registered_buffers"
	// featureIncremental is the ring of buffers that receives share (Driver.Receive).
	featureIncremental = "incremental_buffers"
)

// ringFeatures lists all of them with the kernel that brought them, in the order of Info. All
// else that a ring needs came with deferred task work, or before.
func ringFeatures() []Feature {
	return []Feature{
		{Name: featureDeferTaskrun, Since: "6.1"},
		{Name: featureNoSQArray, Since: "6.6"},
		{Name: featureRegisteredRing, Since: "5.18"},
		{Name: featureFileTable, Since: "6.14"},
		{Name: featureRegisteredBuffers, Since: "5.19"},
		{Name: featureIncremental, Since: "6.12"},
	}
}

// featureSet collects the results of the trials. A feature that was neither switched off
// nor tried yet has no Why.
type featureSet []Feature

const whyOff = "switched off by a test"

// newFeatureSet starts with all features unknown, except for those in off.
func newFeatureSet(off []string) featureSet {
	set := featureSet(ringFeatures())
	for i := range set {
		if slices.Contains(off, set[i].Name) {
			set[i].Why = whyOff
		}
	}
	return set
}

func (s featureSet) at(name string) *Feature {
	return &s[slices.IndexFunc(s, func(f Feature) bool { return f.Name == name })]
}

// wanted says whether name is still worth a try.
func (s featureSet) wanted(name string) bool { return s.at(name).Why == "" }

// tried notes the result of a trial.
func (s featureSet) tried(name string, err error) {
	f := s.at(name)
	if f.Have = err == nil && f.Why == ""; err != nil && f.Why == "" {
		f.Why = err.Error()
	}
}
