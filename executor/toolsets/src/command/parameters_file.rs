//! The file that a command reads as its standard input.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
};

use serde_json::Value;

/// Writes the parameters into a file without a name, and rewinds it. With a pipe, a command would
/// read an empty document if Faber were killed before it writes.
pub(super) fn write_parameters(parameters: &Value) -> io::Result<File> {
    let mut file = create_unnamed_file()?;
    file.write_all(parameters.to_string().as_bytes())?;
    file.rewind()?;
    seal_file(&file)?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn create_unnamed_file() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    // Tries `MFD_NOEXEC_SEAL` first, and then other flags, because kernels before Linux 6.3 refuse
    // it.
    let no_exec = MFdFlags::from_bits_retain(8);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let create_memory_file = |flags| memfd_create("faber-parameters", flags);
    let file = create_memory_file(flags | no_exec).or_else(|_| create_memory_file(flags))?;
    Ok(file.into())
}

/// Prevents the command and its children from changing the document.
#[cfg(target_os = "linux")]
fn seal_file(file: &File) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn create_unnamed_file() -> io::Result<File> {
    use cap_std::{ambient_authority, fs::Dir};
    let folder = Dir::open_ambient_dir(std::env::temp_dir(), ambient_authority())?;
    Ok(cap_tempfile::TempFile::new_anonymous(&folder)?.into_std())
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
fn seal_file(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::fs::PermissionsExt as _};

    use serde_json::json;

    use super::*;

    #[test]
    fn the_file_has_the_whole_document_and_cannot_be_changed() {
        let parameters = json!({ "text": "x".repeat(1 << 20), "n": 1.5 });
        let mut file = write_parameters(&parameters).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, parameters.to_string());
        if cfg!(target_os = "linux") {
            file.rewind().unwrap();
            assert!(file.write_all(b"{}").is_err() && file.set_len(0).is_err());
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0, "it is not executable (since Linux 6.3)");
        }
    }
}
