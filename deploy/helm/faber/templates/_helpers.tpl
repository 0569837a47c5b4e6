{{- define "faber.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "faber.selector" -}}
app.kubernetes.io/name: faber
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "faber.labels" -}}
{{ include "faber.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The pods of the StatefulSet and of the Deployment differ in their volume only. */}}
{{- define "faber.pod" -}}
metadata:
  labels:
    {{- include "faber.labels" . | nindent 4 }}
  annotations:
    # A changed configuration restarts the pods.
    checksum/config: {{ toYaml .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "faber.name" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: faber
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      ports:
        - { name: http, containerPort: 8080 }
      env:
        - { name: FABER_CONFIG, value: /etc/faber/faber.yaml }
        - { name: FABER_LISTEN, value: "0.0.0.0:8080" }
        {{- if eq .Values.store.kind "mongodb" }}
        - name: FABER_STORE
          valueFrom:
            secretKeyRef:
              name: {{ required "`store.mongodb.secretName` must name the Secret with the address of MongoDB" .Values.store.mongodb.secretName }}
              key: {{ .Values.store.mongodb.secretKey }}
        {{- else }}
        - { name: FABER_STORE, value: "sqlite:/var/lib/faber/faber.db" }
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.secretEnv }}
      envFrom:
        {{- range . }}
        - secretRef: { name: {{ . }} }
        {{- end }}
      {{- end }}
      # A large store may be converted when a new version opens it.
      startupProbe:
        httpGet: { path: /health/live, port: http }
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: { path: /health/live, port: http }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: { path: /health/ready, port: http }
        periodSeconds: 5
        timeoutSeconds: 6
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: config, mountPath: /etc/faber, readOnly: true }
        - { name: state, mountPath: /var/lib/faber }
  volumes:
    - name: config
      configMap: { name: {{ include "faber.name" . }} }
    {{- if eq .Values.store.kind "mongodb" }}
    - name: state
      emptyDir: {}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
