use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use shared::store::{
    StoreError, TextHash, Vectors,
    backend::{check_vectors, decode_vector, encode_vector},
};

use super::{Change, Sqlite, connection::to_store_error};

/// Maximum bytes of vectors that one transaction writes. The writer commits other operations
/// between two such transactions.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct VectorRows {
    model: String,
    rows: Vec<(TextHash, Vec<u8>)>,
}

impl VectorRows {
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(|(text, numbers)| text.0.len() + numbers.len()).sum()
    }

    /// Skips texts that have a vector already, because the stored vector is the same.
    pub(super) fn put(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "INSERT OR IGNORE INTO models (name) VALUES (?1)";
        connection.prepare_cached(sql)?.execute([&self.model])?;
        let Some(model) = find_model(connection, &self.model)? else { return Ok(()) };
        let sql = "INSERT OR IGNORE INTO vectors (model, text, numbers) VALUES (?1, ?2, ?3)";
        let mut insert = connection.prepare_cached(sql)?;
        for (text, numbers) in &self.rows {
            insert.execute(params![model, text.0, numbers])?;
        }
        Ok(())
    }
}

fn find_model(connection: &Connection, model: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT number FROM models WHERE name = ?1";
    connection.prepare_cached(sql)?.query_row([model], |row| row.get(0)).optional()
}

#[async_trait]
impl Vectors for Sqlite {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        let (model, texts) = (model.to_owned(), texts.to_vec());
        self.readers.read(move |connection| find_vectors(connection, &model, &texts)).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        check_vectors(model, vectors)?;
        let longest = vectors.iter().map(|(_, vector)| vector.len() * size_of::<f32>()).max();
        let batch_len = (BATCH_BYTES / longest.unwrap_or_default().max(1)).max(1);
        for batch in vectors.chunks(batch_len) {
            let rows = batch.iter().map(|(text, vector)| (*text, encode_vector(vector))).collect();
            self.write(Change::PutVectors(VectorRows { model: model.to_owned(), rows })).await?;
        }
        Ok(())
    }
}

fn find_vectors(
    connection: &Connection,
    model: &str,
    texts: &[TextHash],
) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
    let mut vectors = vec![None; texts.len()];
    let Some(model) = find_model(connection, model).map_err(|err| to_store_error(&err))? else {
        return Ok(vectors);
    };
    let sql = "SELECT numbers FROM vectors WHERE model = ?1 AND text = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    for (vector, text) in vectors.iter_mut().zip(texts) {
        let mut found =
            statement.query(params![model, text.0]).map_err(|err| to_store_error(&err))?;
        let Some(row) = found.next().map_err(|err| to_store_error(&err))? else { continue };
        let numbers = row.get_ref(0).map_err(|err| to_store_error(&err))?.as_blob();
        let numbers =
            numbers.map_err(|err| StoreError::corrupt(format_args!("text {text:?}"), err))?;
        *vector = Some(decode_vector(text, numbers)?);
    }
    Ok(vectors)
}
