//! Vectors in MongoDB. Each vector is a document whose `_id` is the model and the hash of the text.

use async_trait::async_trait;
use futures::TryStreamExt;
use mongodb::bson::{
    Binary, Document as Row, RawArrayBuf, RawDocument, RawDocumentBuf, doc, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use shared::store::{
    StoreError, TextHash, Vectors,
    backend::{check_vectors, decode_vector, encode_vector},
};

use super::{Mongo, commands, connection::to_store_error};

const VECTORS: &str = "vectors";
/// Maximum number of texts in one query, and of vectors in one write.
const BATCH_LEN: usize = 4_096;
/// Maximum bytes of vectors in one write.
const BATCH_BYTES: usize = 4 << 20;

#[async_trait]
impl Vectors for Mongo {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|n| texts[*n]);
        let mut vectors = vec![None; texts.len()];
        for batch in order.chunks(BATCH_LEN) {
            let id = |n: &usize| doc! { "m": model, "t": to_binary(texts[*n].0.to_vec()) };
            let ids: Vec<Row> = batch.iter().map(id).collect();
            let collection = self.raw_collection(VECTORS);
            let found = collection.find(doc! { "_id": { "$in": ids } });
            let found = found.batch_size(u32::try_from(BATCH_LEN).unwrap_or(u32::MAX)).await;
            let mut found = found.map_err(|err| to_store_error(&err))?;
            while let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))? {
                let (text, vector) = read_vector(&row)?;
                let first = batch.partition_point(|n| texts[*n] < text);
                let same_text = batch[first..].iter().take_while(|n| texts[**n] == text);
                same_text.for_each(|n| vectors[*n] = Some(vector.clone()));
            }
        }
        Ok(vectors)
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        check_vectors(model, vectors)?;
        let longest = vectors.iter().map(|(_, vector)| vector.len() * size_of::<f32>()).max();
        let batch_len = (BATCH_BYTES / longest.unwrap_or_default().max(1)).clamp(1, BATCH_LEN);
        for vectors in vectors.chunks(batch_len) {
            let mut documents = RawArrayBuf::new();
            for (text, numbers) in vectors {
                let mut row = RawDocumentBuf::new();
                let id = rawdoc! { "m": model, "t": to_binary(text.0.to_vec()) };
                row.append(cstr!("_id"), id);
                row.append(cstr!("v"), to_binary(encode_vector(numbers)));
                documents.push(row);
            }
            // Ignores duplicates, because a stored vector of the same text is the same vector.
            let command = commands::insert_command(VECTORS, documents);
            commands::run_write(&self.database, command).await?;
        }
        Ok(())
    }
}

fn to_binary(bytes: Vec<u8>) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes }
}

fn read_vector(row: &RawDocument) -> Result<(TextHash, Vec<f32>), StoreError> {
    let damaged = |err: mongodb::bson::error::Error| StoreError::corrupt("a vector", err);
    let text = row.get_document("_id").and_then(|id| id.get_binary("t")).map_err(damaged)?;
    let text = <[u8; 32]>::try_from(text.bytes);
    let text = TextHash(text.map_err(|err| StoreError::corrupt("a vector", err))?);
    let numbers = row.get_binary("v").map_err(damaged)?;
    Ok((text, decode_vector(&text, numbers.bytes)?))
}
