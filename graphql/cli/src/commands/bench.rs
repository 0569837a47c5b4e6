//! `faber bench`: measures the engine, on a temporary store unless the configuration names one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use client::failure::Failure;

use super::serve::refuse_server_flag;
use crate::{
    App, ExitStatus,
    bench::{self, BenchArgs},
    config::{Config, Origin},
    signals,
};

pub(crate) async fn bench(app: &App, args: &BenchArgs) -> Result<ExitStatus, Failure> {
    refuse_server_flag(app, "bench")?;
    let config = &app.config;
    let temporary = create_temporary_store(config)?;
    let url = match &temporary {
        Some(temporary) => format!("sqlite:{}", temporary.0.display()),
        None => config.store.value.clone(),
    };
    let measured = tokio::select! {
        measured = bench::run_workload(args, &url) => Some(measured),
        () = signals::await_interrupt() => None,
    };
    drop(temporary);
    let Some(measured) = measured else { return app.detach("no measurement was completed") };
    app.screen.print_json(&measured?)?;
    Ok(ExitStatus::Done)
}

struct TemporaryStore(PathBuf);

fn create_temporary_store(config: &Config) -> Result<Option<TemporaryStore>, Failure> {
    if config.store.origin != Origin::Default {
        return Ok(None);
    }
    fs::create_dir_all(&config.data).map_err(|err| {
        let place = config.data.display();
        Failure::new("STORE_UNAVAILABLE", format!("`{place}` cannot be created: {err}"))
    })?;
    Ok(Some(TemporaryStore(config.data.join(format!("bench-{}.db", std::process::id())))))
}

impl Drop for TemporaryStore {
    fn drop(&mut self) {
        remove_with_siblings(&self.0);
    }
}

fn remove_with_siblings(path: &Path) {
    let (Some(folder), Some(name)) =
        (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return;
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_sibling = entry.file_name().to_str().is_some_and(|entry| entry.starts_with(name));
        if is_sibling && let Err(err) = remove_store(&entry.path()) {
            tracing::warn!(path = %entry.path().display(), %err, "cannot be removed");
        }
    }
}

fn remove_store(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
