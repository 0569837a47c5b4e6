//! The files that install Faber name commands, variables, settings and paths that exist, and
//! `release/build` makes complete packages.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tests::{binary::faber, installed::find_program};

use crate::cli::{plain_http::get_text, workspace::Workspace};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

fn read_yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

fn chart_templates() -> String {
    let files = fs::read_dir(repository().join("deploy/helm/faber/templates")).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

fn words<'t>(text: &'t str, start: &str) -> BTreeSet<&'t str> {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/'));
    let found = text.match_indices(start).map(|(at, _)| text[at..].split(is_end).next().unwrap());
    found.map(|word| word.trim_end_matches('.')).collect()
}

#[tokio::test]
async fn the_unit_and_the_image_run_commands_that_exist() {
    let unit = read("deploy/systemd/faber.service");
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/faber ")).unwrap();
    let image = read("Dockerfile");
    let lists = image.lines().filter_map(|line| line.split_once("CMD ["));
    let lists = lists.map(|(_, list)| serde_json::from_str(&format!("[{list}")).unwrap());
    let mut commands: Vec<Vec<String>> = lists.collect();
    assert_eq!(commands.len(), 2, "the command and the health check");
    commands.push(start.split(' ').map(str::to_owned).collect());
    let workspace = Workspace::new();
    for command in &commands {
        let arguments = command.iter().map(String::as_str).filter(|word| *word != "faber");
        let arguments: Vec<&str> = arguments.chain(["--help"]).collect();
        let ended = workspace.run(&arguments).await;
        assert_eq!(ended.status, 0, "{ended:?}");
    }
    assert!(unit.contains("StateDirectory=faber\n"));
    assert!(read("release/deb/faber.yaml").contains("store: sqlite:/var/lib/faber/"));
}

fn shipped_configurations() -> Vec<(String, String)> {
    let package = "release/deb/faber.yaml".to_owned();
    let text = read(&package);
    let uncomment = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if ["toolsets:", "  - {", "access:"].iter().any(|key| rest.starts_with(key)) => {
            // The example names a document that does not exist.
            rest.replace("openapi: { document: /etc/faber/pets.yaml, base_url", "mcp: { url")
        }
        _ => line.to_owned(),
    };
    let recommended: Vec<_> = text.lines().map(uncomment).collect();
    assert!(
        recommended.join("\n").contains("\ntoolsets:")
            && recommended.join("\n").contains("\naccess:")
    );
    let mut found = vec![(package.clone(), text.clone()), (package, recommended.join("\n"))];
    for name in ["values.yaml", "ci/sqlite-values.yaml", "ci/mongodb-values.yaml"] {
        let path = format!("deploy/helm/faber/{name}");
        let config = read_yaml(&path)["config"].to_string();
        found.push((path, config));
    }
    found
}

#[tokio::test]
async fn shipped_configurations_have_settings_that_exist() {
    for (path, text) in shipped_configurations() {
        let workspace = Workspace::new();
        workspace.file("faber.yaml", &text);
        let mut command = workspace.command(&["config"]);
        for token in words(&text, "FABER_") {
            command.env(token, "0123456789abcdef0123456789abcdef");
        }
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn shipped_files_name_variables_that_faber_reads() {
    let known = read("docs/reference/configuration.md");
    let mut files = vec![chart_templates()];
    for path in ["Dockerfile", "deploy/helm/faber/values.yaml", "deploy/systemd/faber.service"] {
        files.push(read(path));
    }
    for name in files.iter().flat_map(|text| words(text, "FABER_")) {
        let is_example = name == "FABER_ADMIN_TOKEN";
        let is_read_by_the_build = name == "FABER_BUILD";
        assert!(
            is_example || is_read_by_the_build || known.contains(&format!("`{name}`")),
            "`{name}` is unknown"
        );
    }
}

#[test]
fn templates_of_the_chart_use_values_that_exist_and_no_value_is_unused() {
    let values = read_yaml("deploy/helm/faber/values.yaml");
    let templates = chart_templates();
    let used = words(&templates, ".Values.");
    for path in &used {
        let pointer = path.trim_start_matches(".Values.").replace('.', "/");
        assert!(values.pointer(&format!("/{pointer}")).is_some(), "`{path}` is no value");
    }
    for name in values.as_object().unwrap().keys() {
        let start = format!(".Values.{name}");
        let is_used =
            used.iter().any(|path| *path == start || path.starts_with(&format!("{start}.")));
        assert!(is_used, "no template uses `{name}`");
    }
}

#[tokio::test]
async fn probes_and_monitors_of_the_chart_ask_paths_that_exist() {
    let templates = chart_templates();
    let mut paths = words(&templates, "/health/");
    paths.extend(words(&templates, "/metrics"));
    assert_eq!(paths.len(), 3, "{paths:?}");
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    let line = server.wait_for_line("listening on").await;
    let (_, address) = line.trim().split_once("http://").unwrap();
    for path in paths {
        get_text(address, path).await;
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {problem}");
    String::from_utf8(output.stdout).unwrap()
}

/// Small programs take the place of the compiled binaries, because compressing the real one takes
/// long.
fn build_packages(folder: &Path) {
    let stub = fs::canonicalize("/bin/true").unwrap();
    let mut command = Command::new(repository().join("release/build"));
    command.arg("--docs").arg(faber()).arg("--out").arg(folder);
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-musl"] {
        command.arg("--binary").arg(format!("{target}={}", stub.display()));
    }
    run(&mut command);
}

#[test]
fn a_release_has_complete_packages_and_their_checksums() {
    let folder = tempfile::tempdir().unwrap();
    build_packages(folder.path());
    let version = env!("CARGO_PKG_VERSION");
    let archive = format!("faber-{version}-x86_64-unknown-linux-gnu.tar.gz");
    let listed = run(Command::new("tar").arg("tzf").arg(folder.path().join(archive)));
    for name in
        ["faber", "LICENSE", "README.md", "completions/faber.zsh", "man/man1/faber-serve.1.gz"]
    {
        assert!(
            listed.lines().any(|line| line.ends_with(&format!("-gnu/{name}"))),
            "{name}: {listed}"
        );
    }
    let package = folder.path().join(format!("faber_{version}_amd64.deb"));
    let listed = run(Command::new(find_program("dpkg-deb")).arg("--contents").arg(package));
    for name in ["/usr/bin/faber", "/usr/lib/systemd/system/faber.service", "/etc/faber/faber.yaml"]
    {
        assert!(listed.lines().any(|line| line.ends_with(name)), "{name}: {listed}");
    }
    let sums = run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&folder));
    let kinds =
        ["gnu.tar.gz", "musl.tar.gz", ".deb", ".whl", ".cdx.json", "-x64-gnu-0", "-arm64-musl-0"];
    for kind in kinds {
        assert!(
            sums.lines().any(|line| line.contains(kind) && line.ends_with(": OK")),
            "{kind}: {sums}"
        );
    }
    let bill = fs::read_to_string(folder.path().join(format!("faber-{version}.cdx.json"))).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    let scope = |name: &str| {
        let mut components = bill["components"].as_array().unwrap().iter();
        components.find(|component| component["name"] == name).map(|found| found["scope"].clone())
    };
    assert_eq!(scope("tokio"), Some("required".into()));
    assert_eq!(scope("proptest"), None, "tests are not in the binary");
}

fn add_sources(folder: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_incident_guide_names_log_lines_alerts_and_codes_that_exist() {
    let guide = read("docs/operating/incidents.md");
    let mut sources = Vec::new();
    for part in ["shared", "executor", "graphql"] {
        add_sources(&repository().join(part), &mut sources);
    }
    let lines = guide.match_indices("log: `").map(|(at, start)| &guide[at + start.len()..]);
    let lines: Vec<&str> =
        lines.map(|rest| rest.split(['`', '…']).next().unwrap().trim()).collect();
    assert!(lines.len() > 8, "{lines:?}");
    for line in lines {
        assert!(sources.iter().any(|source| source.contains(line)), "no source logs `{line}`");
    }
    let alerts = read("deploy/prometheus/alerts.yml");
    for (at, start) in guide.match_indices("alert `") {
        let name = guide[at + start.len()..].split('`').next().unwrap();
        assert!(alerts.contains(&format!("alert: {name}\n")), "`{name}` is no alert");
    }
    let errors = read("docs/errors.md");
    for code in guide.split('`').skip(1).step_by(2) {
        let families = ["tool.", "wait.", "template.", "execution.", "plan."];
        let is_code = families.iter().any(|family| code.starts_with(family));
        assert!(!is_code || errors.contains(&format!("`{code}`")), "`{code}` is no code");
    }
}
