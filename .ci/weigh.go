//go:build ignore

// Weigh measures the source code against the bounds that keep it small: lines, exported names
// of public packages, and the files of package control that depend on each other in a circle.
// It also looks for words in comments that are written like code and name nothing.
//
//	go run .ci/weigh.go           print each figure with its bound; exit 1 if one is exceeded
//	go run .ci/weigh.go -knot     also print the circle of files, and the arrows that run back up
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bounds are what may not be exceeded. Whoever raises one says why in CONTRIBUTING.md.
var bounds = map[string]int{
	"lines without tests":                 82040,
	"lines of the library":                66150,
	"lines of bench":                      7995,
	"lines of cmd":                        7900,
	"lines of tests":                      80310,
	"root of control, lines":              3420,
	"root of control, files":              16,
	"root of control, files in a circle":  10,
	"root of control, arrows back up":     13,
	"public packages":                     21,
	"exported names of public packages":   1517,
	"words in comments that name nothing": 0,
}

var order = []string{
	"lines without tests", "lines of the library", "lines of bench", "lines of cmd", "lines of tests",
	"root of control, lines", "root of control, files", "root of control, files in a circle", "root of control, arrows back up",
	"public packages", "exported names of public packages", "words in comments that name nothing",
}

func main() {
	knot := flag.Bool("knot", false, "print the files of package control that depend on each other, and the arrows back up")
	words := flag.Bool("words", false, "print the words in comments that name nothing")
	flag.Parse()
	t := read(".")
	found := map[string]int{}
	t.lines(found)
	t.names(found)
	g := uses(t.dirs["control"])
	circle, back := g.circle(), g.back()
	found["root of control, files in a circle"], found["root of control, arrows back up"] = len(circle), len(back)
	if *knot {
		fmt.Println("files that depend on each other:", strings.Join(circle, " "))
		fmt.Printf("arrows back up, of %d:\n  %s\n", g.arrows(), strings.Join(back, "\n  "))
	}
	unknown := t.unknownWords()
	found["words in comments that name nothing"] = len(unknown)
	if *words {
		fmt.Println(strings.Join(unknown, "\n"))
	}
	bad := false
	for _, what := range order {
		mark := ""
		if found[what] > bounds[what] {
			mark, bad = "  EXCEEDED", true
		}
		fmt.Printf("  %-37s %6d, at most %6d%s\n", what, found[what], bounds[what], mark)
	}
	if bad {
		os.Exit(1)
	}
}

// file is one Go file of the tree.
type file struct {
	dir, name string
	test      bool
	lines     int
	ast       *ast.File
	generated bool
}

type tree struct {
	fset *token.FileSet
	dirs map[string][]*file
}

// read parses all Go files below root, those of other modules too, but not what tests read.
func read(root string) *tree {
	t := &tree{fset: token.NewFileSet(), dirs: map[string][]*file{}}
	must(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(t.fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		t.dirs[dir] = append(t.dirs[dir], &file{
			dir: dir, name: d.Name(), test: strings.HasSuffix(path, "_test.go"), lines: strings.Count(string(src), "\n"),
			ast: parsed, generated: ast.IsGenerated(parsed),
		})
		return nil
	}))
	return t
}

// lines counts lines of code and of tests.
func (t *tree) lines(found map[string]int) {
	for dir, files := range t.dirs {
		for _, f := range files {
			if f.test {
				found["lines of tests"] += f.lines
				continue
			}
			found["lines without tests"] += f.lines
			switch top, _, _ := strings.Cut(dir, "/"); top {
			case "bench", "cmd":
				found["lines of "+top] += f.lines
			default:
				found["lines of the library"] += f.lines
			}
			if dir == "control" {
				found["root of control, lines"] += f.lines
				found["root of control, files"]++
			}
		}
	}
}

// names counts what public packages export: declarations and methods.
func (t *tree) names(found map[string]int) {
	for dir, files := range t.dirs {
		if slices.Contains(strings.Split(dir, "/"), "internal") || strings.HasPrefix(dir, "bench") || strings.HasPrefix(dir, "cmd") {
			continue
		}
		seen := map[string]bool{}
		for _, f := range files {
			if !f.test && !f.generated && f.ast.Name.Name != "main" {
				for _, d := range f.ast.Decls {
					exported(d, seen)
				}
			}
		}
		if len(seen) > 0 {
			found["public packages"]++
			found["exported names of public packages"] += len(seen)
		}
	}
}

// exported adds the names that a declaration exports.
func exported(d ast.Decl, seen map[string]bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			of := receiver(d.Recv.List[0].Type)
			if !ast.IsExported(of) {
				return
			}
			name = of + "." + name
		}
		if d.Name.IsExported() {
			seen[name] = true
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					seen[s.Name.Name] = true
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						seen[n.Name] = true
					}
				}
			}
		}
	}
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// graph has an arrow from each file to those whose types, functions, methods, fields or
// variables it uses.
type graph map[string]map[string]int

// uses makes the graph of one package.
func uses(files []*file) graph {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, f := range files {
		if !f.test {
			p, err := parser.ParseFile(fset, filepath.Join(f.dir, f.name), nil, 0)
			must(err)
			parsed = append(parsed, p)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", compiled(files[0].dir)), Error: func(error) {}}
	pkg, _ := cfg.Check("control", fset, parsed, info) // a build constraint may declare a name twice
	g := graph{}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(obj.Pos()).Filename)
		if v, ok := obj.(*types.Var); from == to || ok && !v.IsField() && v.Parent() != pkg.Scope() {
			continue
		}
		if g[from] == nil {
			g[from] = map[string]int{}
		}
		g[from][to]++
	}
	return g
}

// compiled finds what the compiler wrote about the packages that a directory depends on.
func compiled(dir string) importer.Lookup {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+dir).Output()
	must(err)
	at := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		at[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(at[path]) }
}

func (g graph) arrows() (n int) {
	for _, to := range g {
		n += len(to)
	}
	return n
}

// circle is the largest set of files each of which depends on each other one.
func (g graph) circle() (largest []string) {
	reach := map[string]map[string]bool{}
	for from := range g {
		reach[from] = map[string]bool{}
		next := []string{from}
		for len(next) > 0 {
			at := next[0]
			next = next[1:]
			for to := range g[at] {
				if !reach[from][to] {
					reach[from][to] = true
					next = append(next, to)
				}
			}
		}
	}
	for from := range g {
		var all []string
		for to := range reach[from] {
			if reach[to][from] {
				all = append(all, to)
			}
		}
		if len(all) > len(largest) {
			largest = all
		}
	}
	slices.Sort(largest)
	return largest
}

// back are the arrows that run against an order of the files in which few do: again and
// again the file comes last that uses the others least, or first that is used least.
func (g graph) back() (arrows []string) {
	left := map[string]bool{}
	for from, to := range g {
		left[from] = true
		for name := range to {
			left[name] = true
		}
	}
	place := map[string]int{}
	for at := 0; len(left) > 0; at++ {
		best, most := "", 0
		for _, name := range slices.Sorted(keys(left)) {
			score := 0
			for other := range left {
				if g[name][other] > 0 {
					score++
				}
				if g[other][name] > 0 {
					score--
				}
			}
			if best == "" || score > most {
				best, most = name, score
			}
		}
		place[best] = at
		delete(left, best)
	}
	for from, to := range g {
		for name := range to {
			if place[name] < place[from] {
				arrows = append(arrows, from+" -> "+name)
			}
		}
	}
	slices.Sort(arrows)
	return arrows
}

func keys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// codeLike are words that only code has: a lower-case word with a capital inside, an
// exported name behind a dot, and the name of a Go file.
var codeLike = regexp.MustCompile(`\b([a-z]+[a-z0-9]*[A-Z][A-Za-z0-9]*|[A-Za-z]\w*\.[A-Z][A-Za-z0-9]*|[a-z][a-z0-9_]*\.go)\b`)

// exportedLike are exported names of several words without a package. A dot before or behind
// such a word makes it a name, or a file, of somebody else.
var exportedLike = regexp.MustCompile(`(?:^|[^.\w])([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)(?:\.?[^.\w]|\.?$)`)

// products are written like names of code.
var products = map[string]bool{"HdrHistogram": true, "OpenTelemetry": true}

// unknownWords are the code-like words of comments that no file of the tree declares or is
// called.
func (t *tree) unknownWords() (unknown []string) {
	known, packages := map[string]bool{}, map[string]bool{}
	for dir, files := range t.dirs {
		packages[filepath.Base(dir)] = true
		for _, f := range files {
			known[f.name] = true
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					known[n.Name] = true
				case *ast.BasicLit:
					for _, w := range codeLike.FindAllString(n.Value, -1) {
						known[w] = true
					}
				}
				return true
			})
		}
	}
	for _, files := range t.dirs {
		for _, f := range files {
			if f.generated {
				continue
			}
			for _, group := range f.ast.Comments {
				for _, c := range group.List {
					for _, w := range exportedLike.FindAllStringSubmatch(c.Text, -1) {
						preformatted := strings.HasPrefix(c.Text, "//\t") // may be code of others
						if !known[w[1]] && !products[w[1]] && !preformatted {
							unknown = append(unknown, fmt.Sprintf("%s: %s", t.fset.Position(c.Pos()), w[1]))
						}
					}
					for _, w := range codeLike.FindAllString(c.Text, -1) {
						of, name, ok := strings.Cut(w, ".")
						elsewhere := ok && token.IsIdentifier(name) && !ast.IsExported(of) && !packages[of]
						if !known[w] && !known[name] && !elsewhere {
							unknown = append(unknown, fmt.Sprintf("%s: %s", t.fset.Position(c.Pos()), w))
						}
					}
				}
			}
		}
	}
	slices.Sort(unknown)
	return unknown
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "weigh:", err)
		os.Exit(1)
	}
}
