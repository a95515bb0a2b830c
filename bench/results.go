package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// save writes the JSON file, if one is wanted. It is replaced in one step.
func (r *runner) save() error {
	if r.opt.json == "" {
		return nil
	}
	p, err := json.MarshalIndent(&r.file, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	temporary := r.opt.json + ".new"
	if err := os.WriteFile(temporary, append(p, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.Rename(temporary, r.opt.json); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// show prints the tables of a JSON file.
func show(path string, stdout io.Writer) error {
	p, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--show: %w", err)
	}
	var f report.File
	if err := json.Unmarshal(p, &f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.WriteTable(stdout)
}
