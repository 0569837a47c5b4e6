//! Where a provider is.

use genai::resolver::Endpoint;
use reqwest::Url;

/// Returns the address that the paths of the provider's language follow.
pub(super) fn endpoint(written: &str) -> Result<Endpoint, String> {
    let url: Url = written.parse().map_err(|err| {
        format!("`planner.base_url` is no address ({err}): write `https://host/v1`")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("`planner.base_url` is neither `http://…` nor `https://…`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let why = "`planner.base_url` has a password: name a variable by `planner.api_key_env`";
        return Err(why.to_owned());
    }
    Ok(Endpoint::from_owned(format!("{}/", written.trim_end_matches('/'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_looked_at_before_they_are_used() {
        assert_eq!(endpoint("https://h/v1").unwrap().base_url(), "https://h/v1/");
        assert_eq!(endpoint("https://h/v1/").unwrap().base_url(), "https://h/v1/");
        for wrong in ["nowhere", "ftp://h/", "https://me:pw@h/"] {
            assert!(endpoint(wrong).unwrap_err().contains("base_url"), "{wrong}");
        }
    }
}
