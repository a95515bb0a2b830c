package uring

// Names that the tests of the contract need.
const (
	MaxVec                   = maxVec
	FeatureAIO               = featureAIO
	FeaturePwait2            = featurePwait2
	FeatureNoSQArray         = featureNoSQArray
	FeatureFileTable         = featureFileTable
	FeatureRegisteredBuffers = featureRegisteredBuffers
	FeatureReportUsage       = featureReportUsage
	FeatureIncremental       = featureIncremental
	FeatureDeferTaskrun      = featureDeferTaskrun
)

// Tuning is what tests change.
type Tuning = tuning

// Tuned is c with other bounds than the usual ones.
func Tuned(c Config, t Tuning) Config {
	c.tests = t
	return c
}

// Without is c without some features.
func Without(c Config, off ...string) Config {
	c.tests.Off = off
	return c
}
