{{/* Parts of the pod. */}}

{{/* Annotations: the digest of the configuration, which servers read once, and where metrics are: (list root server). */}}
{{- define "serving.annotations" -}}
{{- $root := index . 0 -}}
{{- $server := index . 1 -}}
{{- $config := include (print $root.Template.BasePath "/configmap.yaml") $root -}}
{{- $notes := dict "gpushare/config-digest" (sha256sum $config) -}}
{{- if and $root.Values.metrics.enabled $server.metricsPort -}}
{{- $_ := set $notes "prometheus.io/scrape" "true" -}}
{{- $_ := set $notes "prometheus.io/port" (toString $server.metricsPort) -}}
{{- $_ := set $notes "prometheus.io/path" $server.metricsPath -}}
{{- end -}}
{{- if and $root.Values.startTurn $root.Values.gpuMemory -}}
{{- $_ := set $notes "gpushare/start-turn" (toString $root.Values.probes.startupSeconds) -}}
{{- end -}}
{{- mergeOverwrite $notes $root.Values.annotations | toYaml -}}
{{- end -}}

{{/* Environment: the release's own, and where it runs, under arena's names: (list envs envsFromSecret). */}}
{{- define "serving.env" -}}
{{- $secrets := index . 1 -}}
{{- $fields := dict "NODE_NAME" "spec.nodeName" "POD_NAMESPACE" "metadata.namespace"
  "POD_NAME" "metadata.name" "POD_IP" "status.podIP" -}}
{{- $own := merge (dict) (index . 0) $secrets -}}
{{- range $name, $path := $fields }}
{{- if not (hasKey $own (printf "ARENA_%s" $name)) }}
- name: ARENA_{{ $name }}
  valueFrom:
    fieldRef:
      fieldPath: {{ $path }}
{{- end }}
{{- end }}
{{- range $name, $value := index . 0 }}
- name: {{ $name | quote }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $secret := $secrets }}
- name: {{ $name | quote }}
  valueFrom:
    secretKeyRef: {name: {{ $secret | quote }}, key: {{ $name | quote }}}
{{- end }}
{{- end -}}

{{/* Ports of the container: server. */}}
{{- define "serving.ports" -}}
{{- if or .grpc .http -}}
ports:
  {{- if .grpc }}
  - {name: grpc, containerPort: {{ .grpc }}, protocol: TCP}
  {{- end }}
  {{- if .http }}
  - {name: http, containerPort: {{ .http }}, protocol: TCP}
  {{- end }}
  {{- if and .metricsPort (ne (int .metricsPort) (int .http)) }}
  - {name: metrics, containerPort: {{ .metricsPort }}, protocol: TCP}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Probes: the release's own, else the server's. A server without a path gets a TCP probe: (list root server). */}}
{{- define "serving.probes" -}}
{{- $values := (index . 0).Values -}}
{{- $server := index . 1 -}}
{{- $port := ternary "http" "grpc" (ne (int $server.http) 0) -}}
{{- $own := dict -}}
{{- if or $server.http $server.grpc -}}
{{- $ready := include "serving.probe" (list $server.ready $port) | fromYaml -}}
{{- $live := include "serving.probe" (list $server.live $port) | fromYaml -}}
{{- $patience := div (add $values.probes.startupSeconds 1) 2 -}}
{{- $own = dict
  "startup" (merge (dict "periodSeconds" 2 "failureThreshold" $patience) $ready)
  "readiness" (merge (dict "periodSeconds" 2) $ready)
  "liveness" (merge (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6) $live) -}}
{{- end -}}
{{- range $name := list "startup" "readiness" "liveness" }}
{{- with get $values.probes $name | default (get $own $name) }}
{{ $name }}Probe:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The action of one probe: (list path port). */}}
{{- define "serving.probe" -}}
{{- if and (index . 0) (eq (index . 1) "http") -}}
httpGet: {path: {{ index . 0 | quote }}, port: http}
{{- else -}}
tcpSocket: {port: {{ index . 1 }}}
{{- end }}
{{- end -}}

{{/* How pods are replaced; empty leaves it to the API: strategy. */}}
{{- define "serving.strategy" -}}
{{- $limits := dict -}}
{{- range $name := list "maxSurge" "maxUnavailable" -}}
{{- $amount := get $ $name | toString -}}
{{- if $amount -}}
{{- $_ := set $limits $name (ternary $amount (int $amount) (hasSuffix "%" $amount)) -}}
{{- end -}}
{{- end -}}
{{- with $limits -}}
type: RollingUpdate
rollingUpdate:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* An amount as text; the engine reads whole numbers as decimals, and writes large ones as 2e+06. */}}
{{- define "serving.amount" -}}
{{- if not (kindIs "float64" .) -}}
{{ . }}
{{- else if eq (floor .) . -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* Requests and limits, every amount as text: clusters of 1.20 refuse a number. */}}
{{- define "serving.resources" -}}
{{- $values := .Values -}}
limits:
  {{- with $values.memory }}
  memory: {{ include "serving.amount" . | quote }}
  {{- end }}
  {{- if $values.gpuMemory }}
  {{ $values.resourceDomain }}/gpu-mem: {{ include "serving.amount" $values.gpuMemory | quote }}
  {{- end }}
  {{- if $values.gpuCore }}
  {{ $values.resourceDomain }}/gpu-core.percentage: {{ include "serving.amount" $values.gpuCore | quote }}
  {{- end }}
  {{- if $values.gpuCount }}
  {{ $values.resourceDomain }}/gpu: {{ include "serving.amount" $values.gpuCount | quote }}
  {{- end }}
  {{- range $name, $count := $values.devices }}
  {{ $name }}: {{ include "serving.amount" $count | quote }}
  {{- end }}
{{- with $values.cpu }}
requests:
  cpu: {{ include "serving.amount" . | quote }}
{{- end }}
{{- end -}}

{{- define "serving.mounts" -}}
- {name: gpushare-serving, mountPath: /etc/gpushare-serving, readOnly: true}
{{- range $index, $item := .Values.configFiles }}
- {name: gpushare-serving, mountPath: {{ $item.path | quote }}, subPath: file-{{ $index }}, readOnly: true}
{{- end }}
{{- if .Values.sharedMemory }}
- {name: shared-memory, mountPath: /dev/shm}
{{- end }}
{{- range $item := .Values.emptyDirs }}
- name: empty-dir-{{ $item.name }}
  mountPath: {{ $item.mountPath | quote }}
  {{- with $item.subPathExpr }}
  subPathExpr: {{ . | quote }}
  {{- end }}
{{- end }}
{{- range $index, $item := .Values.data }}
- name: data-{{ $index }}
  mountPath: {{ $item.mountPath | quote }}
  {{- with $item.subPathExpr }}
  subPathExpr: {{ . | quote }}
  {{- end }}
  readOnly: {{ not (eq (toString $item.readOnly) "false") }}
{{- end }}
{{- range $index, $item := .Values.dataDirs }}
- name: data-dir-{{ $index }}
  mountPath: {{ $item.mountPath | quote }}
  readOnly: {{ not (eq (toString $item.readOnly) "false") }}
{{- end }}
{{- end -}}

{{- define "serving.volumes" -}}
- name: gpushare-serving
  configMap:
    name: {{ include "serving.fullname" . }}
{{- with .Values.sharedMemory }}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ . | toString | quote }}}
{{- end }}
{{- range $item := .Values.emptyDirs }}
- name: empty-dir-{{ $item.name }}
  {{- if $item.sizeLimit }}
  emptyDir: {sizeLimit: {{ $item.sizeLimit | toString | quote }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- range $index, $item := .Values.data }}
- name: data-{{ $index }}
  persistentVolumeClaim:
    claimName: {{ $item.claim | quote }}
{{- end }}
{{- range $index, $item := .Values.dataDirs }}
- name: data-dir-{{ $index }}
  hostPath:
    path: {{ $item.hostPath | quote }}
    type: Directory
{{- end }}
{{- end -}}
