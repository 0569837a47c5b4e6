//! How often tools were called, in the file.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use shared::store::{StoreError, Usage};

use super::{connection::failed, rows};

/// Adds calls to those that are counted.
pub(super) fn add(connection: &Connection, usage: &[Usage]) -> rusqlite::Result<()> {
    let sql = "INSERT INTO usage VALUES (?1, ?2, ?3, ?4) ON CONFLICT (tool) DO UPDATE SET
        calls = calls + excluded.calls, failures = failures + excluded.failures,
        last = max(last, excluded.last)";
    let mut whole = connection.prepare_cached(sql)?;
    let sql = "INSERT INTO usage_times VALUES (?1, ?2, ?3) ON CONFLICT (tool, bucket) DO UPDATE SET
        calls = calls + excluded.calls";
    let mut times = connection.prepare_cached(sql)?;
    for Usage { tool, calls, failures, last, times: took } in usage {
        let tool = tool.as_str();
        let (calls, failures) = (calls.cast_signed(), failures.cast_signed());
        whole.execute(params![tool, calls, failures, last.timestamp_micros()])?;
        for (bucket, calls) in took {
            times.execute(params![tool, bucket, calls.cast_signed()])?;
        }
    }
    Ok(())
}

/// Returns how often each tool was called.
pub(super) fn all(connection: &Connection) -> Result<Vec<Usage>, StoreError> {
    let mut usages = BTreeMap::new();
    let sql = "SELECT tool, calls, failures, last FROM usage";
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([]).map_err(|err| failed(&err))?;
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        let name: String = rows::column(row, 0, "usage")?;
        let Ok(tool) = name.parse() else { continue };
        let (calls, failures): (i64, i64) =
            (rows::column(row, 1, &name)?, rows::column(row, 2, &name)?);
        let last = rows::time(rows::column(row, 3, &name)?, &name)?;
        let (calls, failures) = (calls.cast_unsigned(), failures.cast_unsigned());
        usages.insert(name, Usage { tool, calls, failures, last, times: BTreeMap::new() });
    }
    let sql = "SELECT tool, bucket, calls FROM usage_times";
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([]).map_err(|err| failed(&err))?;
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        let name: String = rows::column(row, 0, "usage")?;
        let (bucket, calls): (u16, i64) =
            (rows::column(row, 1, &name)?, rows::column(row, 2, &name)?);
        if let Some(usage) = usages.get_mut(&name) {
            usage.times.insert(bucket, calls.cast_unsigned());
        }
    }
    Ok(usages.into_values().collect())
}
