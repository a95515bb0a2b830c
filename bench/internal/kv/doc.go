// Package kv has what the comparison of key-value servers stands on:
// values that are known by their key and generation, what clients ask for and
// what they must get (Work), and a store that does what ringkv does with package net and a
// lock (Server).
package kv
