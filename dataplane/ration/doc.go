// Package ration keeps what happens over and over from filling the log, whether
// peers or a shortage of the machine cause it: a few lines a minute are written
// for each cause, and the others are counted.
package ration
