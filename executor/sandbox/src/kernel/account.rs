//! The user that a command runs as.

use std::{ffi::CString, io};

use nix::unistd::{User, geteuid, initgroups, setgid, setuid};

/// Switches to another user and the groups of that user, for good.
pub(super) fn become_user(name: &str) -> io::Result<()> {
    let user = find(name)?;
    if user.uid == geteuid() {
        return Ok(());
    }
    let change = || {
        // Groups first: the new user may not change them.
        initgroups(&CString::new(name)?, user.gid)?;
        setgid(user.gid)?;
        Ok::<_, io::Error>(setuid(user.uid)?)
    };
    change().map_err(|err| {
        io::Error::other(format!(
            "it cannot become the user `{name}` ({err}): that takes CAP_SETUID and CAP_SETGID, so \
             start Faber as root, or leave out `user`"
        ))
    })
}

pub(super) fn home_of(name: &str) -> io::Result<std::path::PathBuf> {
    Ok(find(name)?.dir)
}

fn find(name: &str) -> io::Result<User> {
    User::from_name(name)?.ok_or_else(|| {
        io::Error::other(format!("there is no user `{name}` on this machine: correct `user`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_is_not_there_is_named() {
        let err = become_user("no-such-user").unwrap_err().to_string();
        assert_eq!(err, "there is no user `no-such-user` on this machine: correct `user`");
        let own = User::from_uid(geteuid()).unwrap().unwrap();
        become_user(&own.name).unwrap();
        assert_eq!(home_of(&own.name).unwrap(), own.dir);
    }
}
