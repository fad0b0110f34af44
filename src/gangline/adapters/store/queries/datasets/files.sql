-- The files of data sets' versions, and what was found of each picture.

-- name: add_dataset_file
-- A request that is repeated adds the same files.
INSERT INTO dataset_file (version, path, project, sha256, bytes, role) VALUES (:version, :path, :project, :sha256, :bytes, :role)
ON CONFLICT (version, path) DO NOTHING

-- name: dataset_files
-- List the files of a version in the order of their paths, with what was found of pictures.
SELECT dataset_file.path, dataset_file.sha256, dataset_file.bytes, dataset_file.role,
       photo.because, photo.format, photo.width, photo.height, photo.sharpness, photo.likeness, photo.thumbnail_bytes
FROM dataset_file LEFT JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.path > :after ORDER BY dataset_file.path LIMIT :limit

-- name: file_of_version
SELECT dataset_file.path, dataset_file.bytes, photo.thumbnail_bytes
FROM dataset_file JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.sha256 = :sha256 LIMIT 1

-- name: photos_to_inspect
-- List the contents of a version's pictures that nobody has looked at yet.
SELECT DISTINCT dataset_file.sha256, dataset_file.bytes
FROM dataset_file LEFT JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.role <> 'caption' AND photo.sha256 IS NULL
ORDER BY dataset_file.sha256 LIMIT :limit

-- name: count_inspected
SELECT COUNT(*) AS pictures, COUNT(photo.sha256) AS inspected
FROM dataset_file LEFT JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.role <> 'caption'

-- name: add_photo
INSERT INTO photo (project, sha256, because, format, width, height, sharpness, likeness, thumbnail_bytes)
VALUES (:project, :sha256, :because, :format, :width, :height, :sharpness, :likeness, :thumbnail_bytes)
ON CONFLICT (project, sha256) DO NOTHING

-- name: content_of_versions
-- List the contents of one version, or of all that are seen (`number` 0), and whether anything else holds each.
SELECT DISTINCT dataset_file.sha256, dataset_file.bytes,
       CASE WHEN EXISTS (SELECT 1 FROM dataset_file AS other JOIN dataset_version AS owner ON owner.id = other.version
                         WHERE other.project = dataset_file.project AND other.sha256 = dataset_file.sha256
                           AND NOT (owner.dataset = :dataset AND (owner.number = :number OR :number = 0)))
              OR EXISTS (SELECT 1 FROM job_file
                         WHERE job_file.project = dataset_file.project AND job_file.sha256 = dataset_file.sha256)
              OR EXISTS (SELECT 1 FROM experiment_file
                         WHERE experiment_file.project = dataset_file.project AND experiment_file.sha256 = dataset_file.sha256)
            THEN 1 ELSE 0 END AS held
FROM dataset_file JOIN dataset_version ON dataset_version.id = dataset_file.version
WHERE dataset_version.dataset = :dataset AND (dataset_version.number = :number OR :number = 0)

-- name: files_going
-- List some files of a version that is removed, each with the row of its bytes, and what else holds these.
SELECT dataset_file.path, dataset_file.sha256, dataset_file.role, blob.used_ms,
       (SELECT COUNT(*) FROM dataset_file AS other
        WHERE other.project = dataset_file.project AND other.sha256 = dataset_file.sha256
          AND other.version <> dataset_file.version) AS versions,
       (SELECT COUNT(*) FROM dataset_file AS again
        WHERE again.version = dataset_file.version AND again.sha256 = dataset_file.sha256
          AND again.path <> dataset_file.path) AS paths,
       (SELECT COUNT(*) FROM job_file
        WHERE job_file.project = dataset_file.project AND job_file.sha256 = dataset_file.sha256)
       + (SELECT COUNT(*) FROM experiment_file
          WHERE experiment_file.project = dataset_file.project AND experiment_file.sha256 = dataset_file.sha256) AS jobs
FROM dataset_file LEFT JOIN blob ON blob.project = dataset_file.project AND blob.sha256 = dataset_file.sha256 AND blob.going = ''
WHERE dataset_file.version = :version ORDER BY dataset_file.path LIMIT :limit

-- name: drop_dataset_file
DELETE FROM dataset_file WHERE version = :version AND path = :path

-- name: drop_photo
-- Forget what was found of a picture that no version has any more.
DELETE FROM photo WHERE project = :project AND sha256 = :sha256
  AND NOT EXISTS (SELECT 1 FROM dataset_file WHERE dataset_file.project = photo.project AND dataset_file.sha256 = photo.sha256)

-- name: stored_thumbnails
SELECT COUNT(*) AS files, CAST(COALESCE(SUM(thumbnail_bytes), 0) AS BIGINT) AS bytes FROM photo
WHERE project = :project AND thumbnail_bytes > 0

-- name: blobs_recorded
-- List those of these contents that are stored or on their way out.
SELECT blob.sha256, blob.bytes, blob.going
FROM {listed_ids} JOIN blob ON blob.project = :project AND blob.sha256 = listed.id

-- name: versions_with
-- Whether any version has a file of this content.
SELECT version FROM dataset_file WHERE project = :project AND sha256 = :sha256 LIMIT 1
