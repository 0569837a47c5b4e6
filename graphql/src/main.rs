//! The `faber` binary.

use std::{ffi::OsStr, path::PathBuf, process::ExitCode, sync::Arc};

use graphql::blog_mcp;
use shared::clock::WallClock;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next();
    if command.as_deref() != Some(OsStr::new("blog-mcp")) {
        return ExitCode::from(2);
    }
    let named = match (arguments.next(), arguments.next()) {
        (Some(flag), Some(file)) if flag == "--file" => Some(PathBuf::from(file)),
        (None, _) => None,
        _ => return ExitCode::from(2),
    };
    let file = named.or_else(|| std::env::var_os("FABER_BLOG_FILE").map(PathBuf::from));
    let file = file.or_else(|| Some(blog_mcp::default_file(&data_home()?)));
    let (Some(file), Ok(runtime)) = (file, tokio::runtime::Runtime::new()) else {
        return ExitCode::from(3);
    };
    match runtime.block_on(blog_mcp::serve(file, Arc::new(WallClock))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn data_home() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|it| PathBuf::from(it).join(".local/share"));
    std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home)
}
