//! No import circle of more than two files inside a crate: a file can be read, tested and moved with the files that it
//! uses, and those do not lead back to it.
//!
//! The graph is read from the sources, without test code: an edge goes from a file to the file that defines what its
//! `use` declarations and paths name, through re-exports. Method calls are not seen; their types are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;
use syn::visit::{self, Visit};

/// The largest circle that may be: a file and one that belongs to it.
const LARGEST: usize = 2;

/// A module's path in its crate, without `crate`.
type ModulePath = Vec<String>;

/// One module: where it stands, and what its paths can begin with.
struct Module {
    file: usize,
    /// Names that it defines itself.
    defined: BTreeSet<String>,
    /// Names that it imports, and the path of each as it is written.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// All paths in its code, imports included.
    paths: Vec<Vec<String>>,
}

/// The modules of one crate, and the files that hold them.
#[derive(Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: BTreeMap<ModulePath, Module>,
}

impl Crate {
    /// Reads a crate from its root file. The error names the file.
    fn read(root: &Path) -> Result<Crate, String> {
        let mut read = Crate::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        read.file(root, &folder, Vec::new())?;
        Ok(read)
    }

    /// Adds a file as this module; its child modules lie in `folder`.
    fn file(&mut self, path: &Path, folder: &Path, module: ModulePath) -> Result<(), String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let syntax = syn::parse_file(&text).map_err(|error| named(&error))?;
        self.files.push(path.to_owned());
        self.items(&syntax.items, self.files.len() - 1, folder, module)
    }

    fn items(
        &mut self,
        items: &[syn::Item],
        file: usize,
        folder: &Path,
        module: ModulePath,
    ) -> Result<(), String> {
        let mut reader = Reader::default();
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            let syn::Item::Mod(child) = item else {
                reader.defines(item);
                reader.visit_item(item);
                continue;
            };
            let name = child.ident.to_string();
            let path: ModulePath = module.iter().cloned().chain([name.clone()]).collect();
            match &child.content {
                Some((_, items)) => self.items(items, file, &folder.join(&name), path)?,
                None => {
                    let (source, below) = place(child, &self.files[file], folder, &name)?;
                    self.file(&source, &below, path)?;
                }
            }
        }
        let Reader { defined, imports, globs, paths } = reader;
        self.modules.insert(module, Module { file, defined, imports, globs, paths });
        Ok(())
    }

    /// Returns the file that defines what this path names, seen from this module; none if it leads out of the crate.
    fn target(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<usize> {
        let mut at = from.clone();
        let mut rest = path;
        match rest.first().map(String::as_str)? {
            "crate" => (at, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            first if self.child(&at, first).is_some() => {}
            // An import makes an edge of its own.
            _ => return None,
        }
        while rest.first().is_some_and(|first| first == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        self.walk(at, rest, depth)
    }

    fn child(&self, module: &ModulePath, name: &str) -> Option<ModulePath> {
        let path: ModulePath = module.iter().cloned().chain([name.to_owned()]).collect();
        self.modules.contains_key(&path).then_some(path)
    }

    /// Follows the names of a path from a module, through child modules and re-exports.
    fn walk(&self, mut at: ModulePath, mut rest: &[String], depth: usize) -> Option<usize> {
        // A re-export of a re-export of ... that leads nowhere.
        if depth > 16 {
            return None;
        }
        loop {
            let module = self.modules.get(&at)?;
            let Some(name) = rest.first() else { return Some(module.file) };
            if let Some(child) = self.child(&at, name) {
                (at, rest) = (child, &rest[1..]);
                continue;
            }
            if module.defined.contains(name) {
                return Some(module.file);
            }
            if let Some(import) = module.imports.get(name) {
                let whole: Vec<String> = import.iter().chain(&rest[1..]).cloned().collect();
                return self.target(&at, &whole, depth + 1);
            }
            let of_glob = |glob: &Vec<String>| {
                let whole: Vec<String> = glob.iter().chain(rest).cloned().collect();
                self.target(&at, &whole, depth + 1)
            };
            // A name that a macro defined stands in the module itself.
            return module.globs.iter().find_map(of_glob).or(Some(module.file));
        }
    }

    /// For each file, the other files that it uses.
    fn edges(&self) -> Vec<BTreeSet<usize>> {
        let mut edges = vec![BTreeSet::new(); self.files.len()];
        for (name, module) in &self.modules {
            for path in &module.paths {
                let target = self.target(name, path, 0).filter(|target| *target != module.file);
                edges[module.file].extend(target);
            }
        }
        edges
    }

    /// The import circles of more files than allowed, each as the names of its files.
    fn circles(&self) -> Vec<Vec<&Path>> {
        let edges = self.edges();
        let reached: Vec<BTreeSet<usize>> = (0..edges.len())
            .map(|start| {
                let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
                while let Some(file) = next.pop() {
                    next.extend(edges[file].iter().copied().filter(|other| seen.insert(*other)));
                }
                seen
            })
            .collect();
        let circle = |file: usize| -> Vec<usize> {
            (0..edges.len())
                .filter(|other| reached[file].contains(other) && reached[*other].contains(&file))
                .collect()
        };
        let circles: BTreeSet<Vec<usize>> =
            (0..edges.len()).map(circle).filter(|files| files.len() > LARGEST).collect();
        circles
            .into_iter()
            .map(|files| files.into_iter().map(|file| self.files[file].as_path()).collect())
            .collect()
    }
}

/// Returns the file of a child module, and the folder of its own children.
fn place(
    child: &syn::ItemMod,
    parent: &Path,
    folder: &Path,
    name: &str,
) -> Result<(PathBuf, PathBuf), String> {
    if let Some(path) = child.attrs.iter().find_map(given_path) {
        let source = parent.parent().unwrap_or(Path::new("")).join(path);
        let below = source.parent().unwrap_or(Path::new("")).to_owned();
        return Ok((source, below));
    }
    let below = folder.join(name);
    let sources = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
    let source = sources.into_iter().find(|source| source.is_file());
    source
        .map(|source| (source, below))
        .ok_or_else(|| format!("{}: no file of `mod {name}`", parent.display()))
}

/// The value of `#[path = "..."]`.
fn given_path(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(value), .. }) = &pair.value else { return None };
    pair.path.is_ident("path").then(|| value.value())
}

/// Returns true for what only tests compile: `#[cfg(test)]`, `#[cfg(all(test, ...))]` and `#[test]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            let mut words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            !text.starts_with("not") && !text.starts_with("any") && words.any(|word| word == "test")
        }
        _ => false,
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Collects what one module defines, imports and names.
#[derive(Default)]
struct Reader {
    defined: BTreeSet<String>,
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: Vec<Vec<String>>,
}

impl Reader {
    fn defines(&mut self, item: &syn::Item) {
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.defined.extend(name.map(ToString::to_string));
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| -> Vec<String> {
            let name = name.to_string();
            if name == "self" && !before.is_empty() {
                return before.to_vec();
            }
            before.iter().cloned().chain([name]).collect()
        };
        let mut import = |name: String, path: Vec<String>| {
            self.paths.push(path.clone());
            self.imports.insert(name, path);
        };
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, before)),
            syn::UseTree::Glob(_) => {
                self.paths.push(before.to_vec());
                self.globs.push(before.to_vec());
            }
            syn::UseTree::Name(name) => {
                let path = with(&name.ident);
                import(path.last().cloned().unwrap_or_default(), path);
            }
            syn::UseTree::Rename(rename) => import(rename.rename.to_string(), with(&rename.ident)),
        }
    }

    /// Paths in a macro's arguments, which are only tokens.
    fn tokens(&mut self, text: &str) {
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" :: ", "::");
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Vec<_>>());
        self.paths.extend(paths.filter(|path| path.len() > 1 && path.iter().all(|part| !part.is_empty())));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // `::name` is another crate.
        if item.leading_colon.is_none() {
            self.tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        self.tokens(&invoked.tokens.to_string());
        visit::visit_macro(self, invoked);
    }
}

/// The root files of all libraries and programs of the workspace.
fn roots() -> Vec<PathBuf> {
    let metadata = MetadataCommand::new()
        .current_dir(tests::workspace())
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata");
    let targets = metadata.workspace_packages().into_iter().flat_map(|package| &package.targets);
    let built = targets.filter(|target| !target.is_test() && !target.is_bench() && !target.is_custom_build());
    built.map(|target| target.src_path.clone().into()).collect()
}

#[test]
fn crates_have_no_large_import_circle() {
    let roots = roots();
    assert!(roots.len() > 12, "libraries and programs: {roots:?}");
    let mut faults = Vec::new();
    for root in roots {
        let read = Crate::read(&root).unwrap_or_else(|error| panic!("{error}"));
        for circle in read.circles() {
            let names: Vec<String> = circle
                .iter()
                .map(|file| file.strip_prefix(tests::workspace()).unwrap_or(file).display().to_string())
                .collect();
            faults.push(format!("{} files import each other: {}", names.len(), names.join(" ")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A crate of these files, read.
fn planted(files: &[(&str, &str)]) -> (tempfile::TempDir, Crate) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let read = Crate::read(&folder.path().join("lib.rs")).expect("a crate");
    (folder, read)
}

fn names(circles: &[Vec<&Path>]) -> Vec<Vec<String>> {
    let name = |file: &&Path| file.file_name().unwrap_or_default().display().to_string();
    circles.iter().map(|circle| circle.iter().map(name).collect()).collect()
}

#[test]
fn planted_circle_of_three_is_found() {
    let root = ("lib.rs", "mod a; mod b; mod c; pub use a::A;");
    let (a, b) =
        (("a.rs", "use crate::b::B; pub struct A(B);"), ("b.rs", "use super::c; pub struct B(c::C);"));
    let (_folder, read) = planted(&[root, a, b, ("c.rs", "pub struct C(crate::A);")]);
    assert_eq!(names(&read.circles()), [["a.rs", "b.rs", "c.rs"]], "by a re-export");
    let (_folder, read) =
        planted(&[root, a, b, ("c.rs", "pub fn c() { println!(\"{}\", crate::a::one()) }")]);
    assert_eq!(names(&read.circles()).len(), 1, "in a macro");
    let (_folder, read) = planted(&[root, a, b, ("c.rs", "pub struct C(std::rc::Rc<()>);")]);
    assert_eq!(names(&read.circles()).len(), 0, "cut");
}

#[test]
fn two_files_and_test_code_are_no_circle() {
    let files = [
        ("lib.rs", "mod a; mod b; pub struct Root;"),
        ("a.rs", "pub mod inner; use inner::Inner; pub struct A(Inner);"),
        ("a/inner.rs", "pub struct Inner(*const super::A);"),
        ("b.rs", "use crate::a::A; pub struct B(A); #[cfg(test)] mod tests { use crate::Root; }"),
    ];
    let (_folder, read) = planted(&files);
    assert_eq!(read.circles().len(), 0);
    let circle = ("a/inner.rs", "pub struct Inner(*const crate::b::B);");
    let (_folder, read) = planted(&[files[0], files[1], circle, files[3]]);
    assert_eq!(names(&read.circles()), [["a.rs", "inner.rs", "b.rs"]]);
}
