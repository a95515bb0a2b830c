package uring

// Names that the tests of the contract need.
const (
	MaxVec                   = maxVec
	FeatureAIO               = featureAIO
	FeatureNoSQArray         = featureNoSQArray
	FeatureFileTable         = featureFileTable
	FeatureRegisteredBuffers = featureRegisteredBuffers
	FeatureReportUsage       = featureReportUsage
	FeatureIncremental       = featureIncremental
	FeatureDeferTaskrun      = featureDeferTaskrun
)

// Without is c without some features.
func Without(c Config, off ...string) Config {
	c.off = off
	return c
}
