//! The allowed dependencies between crates, and import cycles between the files of a crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use expect_test::expect;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The highest allowed number of import cycles. Lower it when you remove one.
const MAX_CYCLES: usize = 7;

/// The path of a module inside its crate. The root of the crate has no segments.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn repository() -> PathBuf {
    match std::env::var_os("FABER_TEST_STRUCTURE_OF") {
        Some(root) => root.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
    }
}

fn crate_folders() -> Vec<PathBuf> {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    members.split('"').skip(1).step_by(2).map(|folder| repository().join(folder)).collect()
}

/// Returns the crates of this workspace that a crate depends on, except for its tests.
fn workspace_dependencies(folder: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[dependencies]\n").unwrap();
    let names = rest.lines().take_while(|line| !line.starts_with('['));
    let names = names.filter_map(|line| line.split_once('.').map(|(name, _)| name));
    let own =
        crate_folders().into_iter().map(|folder| package_name(&folder)).collect::<BTreeSet<_>>();
    names.filter(|name| own.contains(*name)).map(str::to_owned).collect()
}

fn package_name(folder: &Path) -> String {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("name = \"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn crates_depend_in_one_direction() {
    let crates = crate_folders().into_iter().filter(|folder| !folder.ends_with("tests"));
    let lines = crates.map(|folder| {
        let needed: Vec<String> =
            workspace_dependencies(&folder).iter().map(|name| format!(" {name}")).collect();
        format!("{}:{}\n", package_name(&folder), needed.concat())
    });
    expect![[r"
        shared:
        backup: shared
        encryption: shared
        mongo: shared
        sqlite: shared
        planner: shared
        offline: planner shared
        executor: shared toolbox
        builtin: http_client sandbox secrets shared toolbox
        http_client:
        mcp: http_client sandbox secrets shared toolbox
        sandbox: secrets shared
        secrets: shared
        toolbox: shared
        toolsets: builtin http_client mcp sandbox secrets shared toolbox
        graphql: engine executor oidc planner shared toolbox toolsets
        engine: encryption executor mongo offline planner shared sqlite toolbox toolsets
        faber: engine executor shared toolbox
        client: engine executor graphql planner shared toolbox
        mcp_server: client engine shared
        oidc: engine http_client shared
        otlp: shared
        faber-cli: backup client engine executor graphql mcp mcp_server offline oidc otlp planner sandbox shared toolbox toolsets
    "]]
    .assert_eq(&lines.collect::<String>());
}

#[test]
fn import_cycles_do_not_grow() {
    let mut cycles = Vec::new();
    for folder in crate_folders() {
        for cycle in find_cycles(&read_imports(&folder.join("src"))) {
            let files: Vec<String> = cycle.iter().map(|module| module.join("/")).collect();
            cycles.push(format!("{}: {}", package_name(&folder), files.join(", ")));
        }
    }
    assert!(cycles.len() <= MAX_CYCLES, "{} cycles:\n{}", cycles.len(), cycles.join("\n"));
}

/// Returns the modules that each module of a crate names. Leaves out tests. Also leaves out imports
/// between a module and its own submodules, because such modules belong together.
fn read_imports(source: &Path) -> Imports {
    let mut files = BTreeMap::new();
    find_modules(source, &Module::new(), &mut files);
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let mut imports = Imports::new();
    for (module, file) in &files {
        let tokens: TokenStream = fs::read_to_string(file).unwrap().parse().unwrap();
        let mut paths = Vec::new();
        read_paths(tokens, &[], &mut paths);
        let targets = paths.iter().filter_map(|path| resolve_path(path, module, &modules));
        let is_related = |other: &Module| other.starts_with(module) || module.starts_with(other);
        imports.insert(module.clone(), targets.filter(|other| !is_related(other)).collect());
    }
    imports
}

fn find_modules(folder: &Path, parent: &Module, files: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = [parent.as_slice(), std::slice::from_ref(&name)].concat();
        if name.ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            find_modules(&path, &module, files);
        } else if ["lib", "main", "mod"].contains(&&*name) {
            files.insert(parent.clone(), path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(module, path);
        }
    }
}

/// Reads every path such as `a::b`, including paths in `use` trees. Items for tests are left out.
fn read_paths(tokens: TokenStream, prefix: &[String], paths: &mut Vec<Module>) {
    let mut path = prefix.to_vec();
    let mut colons = 0;
    let mut skips_item = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    paths.push(std::mem::replace(&mut path, prefix.to_vec()));
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Group(group) => {
                let is_tree = colons == 2 && group.delimiter() == Delimiter::Brace;
                let is_for_tests = group.delimiter() == Delimiter::Bracket
                    && group.stream().to_string().replace(' ', "").starts_with("cfg(test)");
                let ends_item = group.delimiter() == Delimiter::Brace;
                if is_for_tests {
                    skips_item = true;
                } else if !skips_item {
                    read_paths(group.stream(), if is_tree { &path } else { &[] }, paths);
                }
                skips_item &= !ends_item;
                paths.push(std::mem::replace(&mut path, prefix.to_vec()));
                colons = 0;
            }
            TokenTree::Punct(punct) => {
                skips_item &= punct.as_char() != ';';
                paths.push(std::mem::replace(&mut path, prefix.to_vec()));
                colons = 0;
            }
            TokenTree::Literal(_) => colons = 0,
        }
    }
    paths.push(path);
}

fn resolve_path(path: &[String], module: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut target = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            target.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while let Some("super") = rest.first().map(String::as_str) {
                target.pop();
                rest = &rest[1..];
            }
        }
        child
            if path.len() < 2
                || !modules.contains(&[module.as_slice(), &[child.to_owned()]].concat()) =>
        {
            return None;
        }
        _ => (),
    }
    for segment in rest {
        target.push(segment.clone());
        if !modules.contains(&target) {
            target.pop();
            break;
        }
    }
    (target != *module).then_some(target)
}

fn find_cycles(imports: &Imports) -> Vec<Vec<Module>> {
    let reached: Imports =
        imports.keys().map(|module| (module.clone(), reachable_from(module, imports))).collect();
    let mut cycles = BTreeSet::new();
    for (module, others) in &reached {
        let back = others
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|its| its.contains(module)));
        let cycle: Vec<Module> = back.cloned().collect();
        if cycle.len() > 1 {
            cycles.insert(cycle);
        }
    }
    cycles.into_iter().collect()
}

fn reachable_from(from: &Module, imports: &Imports) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if found.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    found
}
